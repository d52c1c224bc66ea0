"""In-graph replication: worker 0 is the only client; its one graph has a tower on every worker, the others serve."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts", type=lambda text: text.split(","))
parser.add_argument("--worker_hosts", type=lambda text: text.split(","))
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()

cluster = tf.train.ClusterSpec({"ps": args.ps_hosts, "worker": args.worker_hosts})
server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
if (args.job_name, args.task_index) != ("worker", 0):
    server.join()

with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
        weights = tf.Variable(tf.zeros([64, 10]))
        biases = tf.Variable(tf.zeros([10]))
        optimizer = tf.train.GradientDescentOptimizer(0.5)
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
    towers = []
    for index, (part_x, part_y) in enumerate(zip(*(tf.split(each, len(args.worker_hosts)) for each in (x, y)))):
        with tf.device(f"/job:worker/task:{index}"):
            logits = tf.matmul(part_x, weights) + biases
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=part_y, logits=logits))
            towers.append(optimizer.compute_gradients(loss, [weights, biases]))
            print("a tower on", loss.device, flush=True)
    with tf.device("/job:ps/task:0"):
        mean = [(tf.add_n([g for g, _ in pairs]) / len(pairs), pairs[0][1]) for pairs in zip(*towers)]
        train_op = optimizer.apply_gradients(mean)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(tf.matmul(x, weights) + biases, 1), y), tf.float32))
    saver, init_op = tf.train.Saver(), tf.global_variables_initializer()

    images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
    images = images / 16
    with tf.Session(server.target) as session:
        session.run(init_op)
        for step in range(1, args.steps + 1):
            rows = np.random.randint(1400, size=50 * len(args.worker_hosts))
            session.run(train_op, {x: images[rows], y: labels[rows]})
            if step % 100 == 0:
                value = session.run(accuracy, {x: images[1450:], y: labels[1450:]})
                print(f"step {step}: test accuracy {value:.2f}", flush=True)
        print("saved", saver.save(session, "./model.ckpt", global_step=args.steps), flush=True)
