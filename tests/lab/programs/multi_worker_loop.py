"""MultiWorkerMirroredStrategy with a loop of its own: each worker reads files of its own (AutoShardPolicy.FILE)."""

import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

task = json.loads(os.environ["TF_CONFIG"])["task"]
options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
is_chief = (task["type"], task["index"]) == ("worker", 0)
output = Path(os.environ["TFCTL_OUTPUT"])

images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = (images / 16).astype("float32")
files = [output / f"part-{number}" for number in range(2 * strategy.num_replicas_in_sync)]
if is_chief:
    rows = [np.array([*x, y], np.float32).tobytes() for x, y in zip(images[:1400], labels[:1400])]
    for number, file in enumerate(files):
        with tf.io.TFRecordWriter(f"{file}.new") as writer:
            for row in rows[number :: len(files)]:
                writer.write(row)
        Path(f"{file}.new").rename(file)
while not all(file.exists() for file in files):
    time.sleep(0.1)


def parse(record):
    row = tf.ensure_shape(tf.io.decode_raw(record, tf.float32), [65])
    return row[:64], tf.cast(row[64], tf.int64)


batch = 32 * strategy.num_replicas_in_sync
data = tf.data.TFRecordDataset([str(file) for file in files]).map(parse).shuffle(1400).repeat().batch(batch)
policy = tf.data.Options()
policy.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
iterator = iter(strategy.experimental_distribute_dataset(data.with_options(policy)))

with strategy.scope():
    weights, biases = tf.Variable(tf.zeros([64, 10])), tf.Variable(tf.zeros([10]))
    optimizer = tf.keras.optimizers.SGD(0.5)


@tf.function
def step():
    def replica(x, y):
        with tf.GradientTape() as tape:
            logits = tf.matmul(x, weights) + biases
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
        optimizer.apply_gradients(zip(tape.gradient(loss, [weights, biases]), [weights, biases]))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, args=next(iterator)), axis=None)


print(f"worker {task['index']}: {strategy.num_replicas_in_sync} replicas, batches of {batch}", flush=True)
for _ in range(200):
    loss = float(step())
print(f"loss {loss:.6f}", flush=True)
logits = tf.matmul(images[1400:], weights) + biases
accuracy = float(tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, axis=1), labels[1400:]), tf.float32)))
print(f"test accuracy {accuracy:.4f}", flush=True)
