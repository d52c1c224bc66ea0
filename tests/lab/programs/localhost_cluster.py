"""A cluster of three processes on one machine, written into the program: python localhost_cluster.py --job_name=ps."""

import sys

import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

tf.disable_v2_behavior()

parameter_servers = ["localhost:2297"]
workers = ["localhost:2298", "localhost:2299"]
cluster = tf.train.ClusterSpec({"ps": parameter_servers, "worker": workers})

tf.app.flags.DEFINE_string("job_name", "", "ps or worker")
tf.app.flags.DEFINE_integer("task_index", 0, "which of them")
FLAGS = tf.app.flags.FLAGS
FLAGS(sys.argv)

batch_size, training_steps = 50, 2000
logs_path = "./logs"

server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
if FLAGS.job_name == "ps":
    server.join()

is_chief = FLAGS.task_index == 0
with tf.device(tf.train.replica_device_setter(worker_device=f"/job:worker/task:{FLAGS.task_index}", cluster=cluster)):
    global_step = tf.train.get_or_create_global_step()
    x = tf.placeholder(tf.float32, [None, 64], name="x-input")
    y = tf.placeholder(tf.int64, [None], name="y-input")
    weights = tf.Variable(tf.random_normal([64, 10], stddev=0.1))
    biases = tf.Variable(tf.zeros([10]))
    logits = tf.matmul(x, weights) + biases
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=global_step)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    summary_op = tf.summary.scalar("cost", loss)
    init_op = tf.global_variables_initializer()

images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = images / 16
supervisor = tf.train.Supervisor(
    is_chief=is_chief, logdir=logs_path, init_op=init_op, summary_op=None, recovery_wait_secs=1
)
with supervisor.managed_session(server.target) as session:
    step = count = 0
    while not supervisor.should_stop() and step < training_steps:
        begin = count * batch_size % 1400
        feed = {x: images[begin : begin + batch_size], y: labels[begin : begin + batch_size]}
        _, cost, step = session.run([train_op, loss, global_step], feed)
        count += 1
        if count % 100 == 0:
            print(f"Step: {step}, Cost: {cost:.4f}", flush=True)
            if is_chief:
                supervisor.summary_computed(session, session.run(summary_op, feed))
    print(f"Test-Accuracy: {session.run(accuracy, {x: images[1450:], y: labels[1450:]}):.2f}", flush=True)
supervisor.stop()
print("done", flush=True)
