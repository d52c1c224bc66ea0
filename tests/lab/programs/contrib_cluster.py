"""For TensorFlow 1 itself: tf.contrib, tf.app.flags, tf.layers; variables dealt to the ps tasks by their size."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

tf.app.flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "Index of task within the job")
tf.app.flags.DEFINE_string("train_dir", "./logs", "Where the chief saves")
tf.app.flags.DEFINE_integer("max_steps", 1000, "Of all workers together")
FLAGS = tf.app.flags.FLAGS


def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    greedy = tf.contrib.training.GreedyLoadBalancingStrategy(
        cluster.num_tasks("ps"), tf.contrib.training.byte_size_load_fn
    )
    worker = "/job:worker/task:" + str(FLAGS.task_index)
    with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster, ps_strategy=greedy)):
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        hidden = tf.contrib.layers.fully_connected(x, 64)
        logits = tf.contrib.layers.fully_connected(hidden, 10, activation_fn=None)
        loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
        accuracy = tf.reduce_mean(tf.to_float(tf.equal(tf.argmax(logits, 1), y)))
        global_step = tf.contrib.framework.get_or_create_global_step()
        train_op = tf.contrib.layers.optimize_loss(loss, global_step, 0.005, "Adam", summaries=["loss"])

    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    rows = np.random.RandomState(0).permutation(len(images))
    train, test = rows[:1400], rows[1400:]
    print("TensorFlow", tf.VERSION, [variable.device for variable in tf.trainable_variables()], flush=True)
    config = tf.ConfigProto(device_filters=["/job:ps", worker])
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.max_steps)]
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=FLAGS.task_index == 0, checkpoint_dir=FLAGS.train_dir, hooks=hooks, config=config
    ) as session:
        step = score = 0
        while not session.should_stop():
            batch = np.random.choice(train, 50)
            _, step = session.run([train_op, global_step], {x: images[batch], y: labels[batch]})
            if step % 50 == 0 and not session.should_stop():
                score = session.run(accuracy, {x: images[test], y: labels[test]})
                tf.logging.info("global step %d: test accuracy %.4f", step, score)
    tf.logging.info("done at global step %d: test accuracy %.4f", step, score)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    tf.app.run()
