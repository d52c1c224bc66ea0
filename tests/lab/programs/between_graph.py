"""Between-graph replication: each worker builds the graph and has a session of its own; the hosts come by flags."""

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "host:port,host:port")
flags.DEFINE_string("worker_hosts", "", "host:port,host:port")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "which of them")
flags.DEFINE_string("train_dir", "./train_logs", "on several hosts one that they share: the ps writes there")
flags.DEFINE_integer("last_step", 2000, "of all workers together")
FLAGS = flags.FLAGS


def main(_):
    ps_hosts, worker_hosts = FLAGS.ps_hosts.split(","), FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    with tf.Graph().as_default():
        worker = f"/job:worker/task:{FLAGS.task_index}"
        with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
            x, y, loss, accuracy = model()
            global_step = tf.train.get_or_create_global_step()
            train_op = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=global_step)
        train(server.target, x, y, [train_op, global_step, loss], accuracy)


def model():
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
    hidden = tf.nn.relu(tf.matmul(x, tf.get_variable("w1", [64, 100])) + tf.get_variable("b1", [100]))
    logits = tf.matmul(hidden, tf.get_variable("w2", [100, 10])) + tf.get_variable("b2", [10])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return x, y, loss, tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))


def train(master, x, y, fetches, accuracy):
    images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
    images = images / 16
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.last_step)]
    with tf.train.MonitoredTrainingSession(master, FLAGS.task_index == 0, FLAGS.train_dir, hooks=hooks) as session:
        local_step = value = 0
        while not session.should_stop():
            rows = np.random.randint(1400, size=50)
            _, step, loss = session.run(fetches, {x: images[rows], y: labels[rows]})
            local_step += 1
            if local_step % 100 == 0 and not session.should_stop():
                value = session.run(accuracy, {x: images[1450:], y: labels[1450:]})
                print(f"{local_step} (global {step}): loss {loss:.4f}, test accuracy {value:.2f}", flush=True)


if __name__ == "__main__":
    tf.app.run()
