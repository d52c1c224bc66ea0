"""Train on handwritten digits with tf.estimator.train_and_evaluate.

The same program runs as every task: a chief or master, workers, parameter servers and an evaluator. RunConfig reads
the task's role from TF_CONFIG. Parameter servers never end by themselves. The chief saves checkpoints. The evaluator
scores them and ends with the checkpoint of the last step. A master is a chief that also evaluates. Without TF_CONFIG,
this one process does all of it.

Needs TensorFlow 2.15 or older.
"""

from __future__ import annotations

import argparse
import os

import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with tf.estimator")
    parser.add_argument("--steps", type=int, default=3000, help="steps of all workers together")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--output", default=os.environ.get("TFCTL_OUTPUT", "output"), help="shared by all hosts")
    args = parser.parse_args()
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)  # log the progress, and what is restored

    config = tf.estimator.RunConfig(
        model_dir=args.output,
        save_checkpoints_steps=1000,
        experimental_max_worker_delay_secs=5,  # by default, worker 9 starts 50 s late
    )
    role, index = config.task_type, config.task_id or 0
    print(f"{role} {index}: {config.num_worker_replicas} workers, {config.num_ps_replicas} ps", flush=True)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    train_x, test_x, train_y, test_y = load_digits()

    def train_input() -> tf.data.Dataset:
        """Return this worker's share of the images, repeated without end."""
        data = tf.data.Dataset.from_tensor_slices((train_x, train_y))
        data = data.shard(config.num_worker_replicas, config.global_id_in_cluster or 0)
        return data.shuffle(len(train_x)).repeat().batch(args.batch_size)

    def test_input() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((test_x, test_y)).batch(60)

    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(train_input, max_steps=args.steps),
        tf.estimator.EvalSpec(test_input, steps=None, start_delay_secs=1, throttle_secs=1),
    )
    if role != "worker" or not config.cluster_spec:
        metrics = estimator.evaluate(test_input)
        print(f"test accuracy {metrics['accuracy']:.4f} at step {metrics['global_step']}", flush=True)
    print(f"{role} {index}: done", flush=True)


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf.estimator.EstimatorSpec:
    hidden = tf.nn.relu(dense("hidden", features, 64))
    logits = dense("logits", hidden, 10)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels, logits)
    accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))
    optimizer = tf.compat.v1.train.AdamOptimizer(0.002)
    train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"accuracy": accuracy})


def dense(name: str, inputs: tf.Tensor, units: int) -> tf.Tensor:
    with tf.compat.v1.variable_scope(name):
        weights = tf.compat.v1.get_variable("weights", [inputs.shape[1], units])
        biases = tf.compat.v1.get_variable("biases", [units], initializer=tf.compat.v1.zeros_initializer())
        return tf.matmul(inputs, weights) + biases


def load_digits() -> list:
    """Return 1,797 grey images of 8x8 pixels, scaled to 0..1, and their labels: [train_x, test_x, train_y, test_y]."""
    from sklearn import datasets, model_selection

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    main()
