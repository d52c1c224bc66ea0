"""One model cut in two: the chief's graph has its first layer on worker 0 and its second on worker 1."""

import argparse

import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
for name in ("chief", "ps", "worker"):
    parser.add_argument(f"--{name}_hosts", type=lambda text: text.split(","))
args = parser.parse_args()

tf.disable_v2_behavior()
cluster = tf.train.ClusterSpec({"chief": args.chief_hosts, "ps": args.ps_hosts, "worker": args.worker_hosts})
server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
if args.job_name != "chief":
    server.join()

with tf.device("/job:ps/task:0"):
    w1 = tf.get_variable("w1", [64, 50])
    w2 = tf.get_variable("w2", [50, 10])
x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
with tf.device("/job:worker/task:0"):
    hidden = tf.nn.relu(tf.matmul(x, w1))
with tf.device("/job:worker/task:1"):
    logits = tf.matmul(hidden, w2)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
train_op = tf.train.AdamOptimizer(0.01).minimize(loss, colocate_gradients_with_ops=True)
print("the first layer on", hidden.device, "and the second on", logits.device, flush=True)

images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = images / 16
with tf.Session(server.target) as session:
    session.run(tf.global_variables_initializer())
    for number in range(300):
        rows = slice(number * 50 % 1400, number * 50 % 1400 + 50)
        session.run(train_op, {x: images[rows], y: labels[rows]})
    print(f"test accuracy {session.run(accuracy, {x: images[1450:], y: labels[1450:]}):.4f}", flush=True)
