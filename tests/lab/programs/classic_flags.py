"""As the guides of TensorFlow 1 have it: tf.app.flags, tf.contrib, a Supervisor's successor. Python 3.6 syntax.

Linear regression of y = 3 x + 2 on one ps and some workers.
"""

import sys

import numpy as np
import tensorflow as tf

import tfctl_runtime

flags = tf.app.flags
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "index of the task")
flags.DEFINE_string("ps_hosts", "", "host:port,host:port")
flags.DEFINE_string("worker_hosts", "", "host:port,host:port")
FLAGS = flags.FLAGS


def main(_):
    print(f"tensorflow {tf.__version__} on python {sys.version_info[0]}.{sys.version_info[1]}", flush=True)
    print(f"chief: {tfctl_runtime.is_chief()}", flush=True)
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    setter = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{FLAGS.task_index}", cluster=cluster)
    with tf.device(setter):
        x = tf.placeholder(tf.float32, [None, 1])
        y = tf.placeholder(tf.float32, [None, 1])
        guess = tf.contrib.layers.fully_connected(x, 1, activation_fn=None)
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(guess - y))
        train = tf.train.GradientDescentOptimizer(0.3).minimize(loss, global_step=step)
    hooks = [tf.train.StopAtStepHook(last_step=400)]
    last = 0.0
    with tf.train.MonitoredTrainingSession(server.target, FLAGS.task_index == 0, hooks=hooks) as session:
        while not session.should_stop():
            batch = np.random.rand(32, 1)
            last = session.run([train, loss], {x: batch, y: 3 * batch + 2})[1]
    print(f"loss {last:.6f}", flush=True)


tf.app.run()
