"""Train on handwritten digits with TensorFlow 1: parameter servers, replicated workers, a MonitoredTrainingSession.

The same program runs as every task. TF_CONFIG tells each process its role, or the classic flags do:

    python train.py --job_name=worker --task_index=0 --ps_hosts=a:2222,b:2222 --worker_hosts=c:2222,d:2222

Without either, the program trains alone. A ps holds variables until it is stopped. Every worker builds the same graph
and trains at its own pace, or synchronously (--sync). Worker 0 is the chief: it initialises or restores the variables,
saves checkpoints, and evaluates at the end.
"""

from __future__ import annotations

import argparse
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

ALONE = '{"cluster": {"worker": ["localhost:0"]}, "task": {"type": "worker", "index": 0}}'  # any free port


def main() -> None:
    args = parse_arguments()
    server = tf.train.Server(args.cluster, job_name=args.job_name, task_index=args.task_index)
    print(f"{args.job_name} {args.task_index} serves at {server.target}", flush=True)
    if args.job_name == "ps":
        server.join()
    else:
        train(server.target, args)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with parameter servers")
    parser.add_argument("--job_name", choices=["ps", "worker"])
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="", help="host:port,host:port, in the same order everywhere")
    parser.add_argument("--worker_hosts", default="", help="host:port,host:port, as for --ps_hosts")
    parser.add_argument("--sync", action="store_true", help="synchronous: mean gradient of all workers")
    parser.add_argument("--steps", type=int, default=4000, help="steps of all workers together")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--output", default=os.environ.get("TFCTL_OUTPUT", "output"), help="shared by all hosts")
    args = parser.parse_args()
    if args.job_name:
        cluster = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    else:
        config = json.loads(os.environ.get("TF_CONFIG", ALONE))
        cluster, args.job_name, args.task_index = config["cluster"], config["task"]["type"], config["task"]["index"]
    args.cluster = tf.train.ClusterSpec(cluster)
    return args


def train(master: str, args: argparse.Namespace) -> None:
    train_x, test_x, train_y, test_y = load_digits()
    is_chief, workers = args.task_index == 0, args.cluster.num_tasks("worker")
    hooks = [tf.train.StopAtStepHook(last_step=args.steps)]
    worker = f"/job:worker/task:{args.task_index}"
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=args.cluster)):  # variables on the ps
        x, y, loss, accuracy = build_model()
        global_step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdamOptimizer(0.002)
        if args.sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, total_num_replicas=workers)
            hooks.append(optimizer.make_session_run_hook(is_chief))
        train_op = optimizer.minimize(loss, global_step=global_step)
    tf.summary.scalar("loss", loss)
    if is_chief:
        hooks.append(AtTheEnd(accuracy, {x: test_x, y: test_y}))

    rng, local_step = np.random.default_rng(args.task_index), 0
    with open_session(master, is_chief, hooks, args) as session:
        while not session.should_stop():
            rows = rng.integers(len(train_x), size=args.batch_size)
            _, step, value = session.run([train_op, global_step, loss], {x: train_x[rows], y: train_y[rows]})
            local_step += 1
            if local_step % 100 == 1:
                where = f"local step {local_step}, global step {step}"
                print(f"worker {args.task_index}: {where}, loss {value:.4f}", flush=True)
    print(f"worker {args.task_index}: done after {local_step} local steps", flush=True)


def open_session(master: str, is_chief: bool, hooks: list, args: argparse.Namespace) -> tf.train.MonitoredSession:
    """Return a session that is created again by itself when a ps has restarted."""
    scaffold = tf.train.Scaffold()
    # Without these filters, a session waits until every other worker is up.
    config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{args.task_index}"])
    if not is_chief:
        return tf.train.MonitoredSession(FollowChief(scaffold, master, config), hooks)
    return tf.train.MonitoredTrainingSession(
        master,
        checkpoint_dir=args.output,  # an existing checkpoint is restored; each ps writes its own part
        scaffold=scaffold,
        hooks=hooks,
        chief_only_hooks=[
            tf.train.CheckpointSaverHook(args.output, save_steps=1000, scaffold=scaffold),
            tf.train.SummarySaverHook(save_steps=100, output_dir=args.output, scaffold=scaffold),
        ],
        save_checkpoint_secs=None,  # the hooks above save
        save_summaries_steps=None,
        save_summaries_secs=None,
        log_step_count_steps=None,
        stop_grace_period_secs=5 if args.sync else 120,  # SyncReplicasOptimizer's queue never ends by itself
        config=config,
    )


class FollowChief(tf.train.SessionCreator):
    """Create sessions like MonitoredTrainingSession's for workers, but check every second whether the chief is ready.

    MonitoredTrainingSession checks only every 30 s. Short jobs are over by then.
    """

    def __init__(self, scaffold: tf.train.Scaffold, master: str, config: tf.ConfigProto) -> None:
        self.scaffold, self.master, self.config = scaffold, master, config

    def create_session(self) -> tf.Session:
        self.scaffold.finalize()
        manager = tf.train.SessionManager(
            local_init_op=self.scaffold.local_init_op,
            ready_op=self.scaffold.ready_op,
            ready_for_local_init_op=self.scaffold.ready_for_local_init_op,
            graph=tf.get_default_graph(),
            recovery_wait_secs=1,
        )
        return manager.wait_for_session(self.master, config=self.config, max_wait_secs=1800)


class AtTheEnd(tf.train.SessionRunHook):
    """Print the accuracy on the test images when training ends."""

    def __init__(self, accuracy: tf.Tensor, images_and_labels: dict) -> None:
        self.accuracy, self.feed = accuracy, images_and_labels

    def end(self, session: tf.Session) -> None:
        print(f"test accuracy {session.run(self.accuracy, self.feed):.4f}", flush=True)


def build_model() -> tuple[tf.Tensor, ...]:
    """Return the placeholders for images and labels, the loss and the accuracy."""
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
    logits = dense("logits", tf.nn.relu(dense("hidden", x, 64)), 10)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    return x, y, loss, accuracy


def dense(name: str, inputs: tf.Tensor, units: int) -> tf.Tensor:
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [inputs.shape[1], units])
        biases = tf.get_variable("biases", [units], initializer=tf.zeros_initializer())
        return tf.matmul(inputs, weights) + biases


def load_digits() -> list:
    """Return 1,797 grey images of 8x8 pixels, scaled to 0..1, and their labels: [train_x, test_x, train_y, test_y]."""
    from sklearn import datasets, model_selection  # a ps does not need it

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.INFO)  # log what is saved and restored
    main()
