"""Replicas under a Supervisor, at their own pace or in step, on variables that a partitioner cuts over the ps tasks."""

import os
import time

import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

flags = tf.app.flags
flags.DEFINE_string("train_dir", "/tmp/replica", "where the chief saves")
flags.DEFINE_string("ps_hosts", "localhost:2222", "host:port,host:port")
flags.DEFINE_string("worker_hosts", "localhost:2223,localhost:2224", "host:port,host:port")
flags.DEFINE_string("job_name", None, "worker or ps")
flags.DEFINE_integer("task_index", None, "0 is the chief")
flags.DEFINE_integer("train_steps", 400, "of all replicas together")
flags.DEFINE_integer("batch_size", 100, "")
flags.DEFINE_integer("hidden_units", 100, "")
flags.DEFINE_float("learning_rate", 0.01, "")
flags.DEFINE_boolean("sync_replicas", False, "each step takes the mean gradient of all replicas")
FLAGS = flags.FLAGS


def main(_):
    if FLAGS.job_name is None or FLAGS.task_index is None:
        raise ValueError("--job_name and --task_index must be given")
    ps_spec, worker_spec = FLAGS.ps_hosts.split(","), FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_spec, "worker": worker_spec})
    gpu_options = tf.GPUOptions(
        per_process_gpu_memory_fraction=float(os.environ.get("GPU_FRACTION", 0)),
        allow_growth=os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH") == "true",
    )
    print("TensorFlow", tf.VERSION)
    print(f"GPU memory: {gpu_options.per_process_gpu_memory_fraction:.1f}, growing {gpu_options.allow_growth}")
    server_config = tf.ConfigProto(gpu_options=gpu_options)
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index, config=server_config)
    if FLAGS.job_name == "ps":
        server.join()

    is_chief = FLAGS.task_index == 0
    worker = f"/job:worker/task:{FLAGS.task_index}"
    setter = tf.train.replica_device_setter(worker_device=worker, ps_device="/job:ps/cpu:0", cluster=cluster)
    partitioner = tf.fixed_size_partitioner(len(ps_spec))
    with tf.device(setter), tf.variable_scope("", partitioner=partitioner):
        global_step = tf.get_variable(
            "global_step", [], tf.int64, tf.zeros_initializer(), trainable=False, partitioner=None
        )
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("hid_w", [64, FLAGS.hidden_units])))
        logits = tf.matmul(hidden, tf.get_variable("sm_w", [FLAGS.hidden_units, 10]))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
        opt = tf.train.AdamOptimizer(FLAGS.learning_rate)
        if FLAGS.sync_replicas:
            opt = tf.train.SyncReplicasOptimizer(opt, len(worker_spec), total_num_replicas=len(worker_spec))
        train_step = opt.minimize(loss, global_step=global_step)

    local_init_op, ready_op = None, None
    if FLAGS.sync_replicas:
        local_init_op = opt.chief_init_op if is_chief else opt.local_step_init_op
        ready_op = opt.ready_for_local_init_op
        queue_runner, tokens = opt.get_chief_queue_runner(), opt.get_init_tokens_op()
    sv = tf.train.Supervisor(
        is_chief=is_chief,
        logdir=FLAGS.train_dir,
        init_op=tf.global_variables_initializer(),
        local_init_op=local_init_op,
        ready_for_local_init_op=ready_op,
        recovery_wait_secs=1,
        global_step=global_step,
    )
    config = tf.ConfigProto(allow_soft_placement=True, device_filters=["/job:ps", worker])
    print(f"Worker {FLAGS.task_index}: waiting for the session", flush=True)
    sess = sv.prepare_or_wait_for_session(server.target, config=config)
    if FLAGS.sync_replicas and is_chief:
        sess.run(tokens)
        sv.start_queue_runners(sess, [queue_runner])

    images, labels = shuffle(*load_digits(return_X_y=True), random_state=FLAGS.task_index)
    images = images / 16
    begin, local_step, step = time.time(), 0, 0
    while step < FLAGS.train_steps:
        rows = slice(local_step * FLAGS.batch_size % 1400, local_step * FLAGS.batch_size % 1400 + FLAGS.batch_size)
        _, step = sess.run([train_step, global_step], {x: images[rows], y: labels[rows]})
        local_step += 1
    print(f"Worker {FLAGS.task_index}: {local_step} local steps in {time.time() - begin:.1f} s", flush=True)
    print(f"test accuracy {sess.run(accuracy, {x: images[1450:], y: labels[1450:]}):.4f}", flush=True)
    for variable in tf.trainable_variables():
        print(variable.name, variable.device, flush=True)
    if is_chief:
        print("saved", sv.saver.save(sess, sv.save_path, global_step=step), flush=True)


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.app.run()
