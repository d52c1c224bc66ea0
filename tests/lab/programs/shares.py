"""Keras fit on a group of workers, three times: files of each worker's own, shares of each batch, everything to each.

python shares.py ring|nccl|auto
"""

import os
import sys
import time
from pathlib import Path

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

import tfctl_runtime as runtime

strategy = runtime.strategy(communication=sys.argv[1])
output = Path(os.environ["TFCTL_OUTPUT"])
replicas = strategy.num_replicas_in_sync
batch = 32 * replicas
print(f"{sys.argv[1]}: {replicas} replicas, batches of {batch}", flush=True)

images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = (images / 16).astype("float32")
files = [str(output / f"part-{number}.csv") for number in range(2 * replicas)]
if runtime.is_chief():
    for number, file in enumerate(files):
        rows = range(number, 1400, len(files))
        text = "".join(",".join(map(str, [*images[row], labels[row]])) + "\n" for row in rows)
        Path(f"{file}.new").write_text(text)
        Path(f"{file}.new").rename(file)
while not all(map(os.path.exists, files)):
    time.sleep(0.1)


def parse(line):
    cells = tf.io.decode_csv(line, [0.0] * 65)
    return tf.stack(cells[:64]), tf.cast(cells[64], tf.int64)


def fit(policy, data, epochs, **more):
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(10, input_shape=(64,))])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(0.02), loss)
    seen = model.fit(runtime.shard(data, policy), epochs=epochs, verbose=0, **more)
    right = tf.argmax(model(images[1400:]), axis=1) == labels[1400:]
    accuracy = float(tf.reduce_mean(tf.cast(right, tf.float32)))
    print(f"{policy}: {seen.params['steps']} steps, loss {seen.history['loss'][-1]:.6f}", flush=True)
    print(f"{policy}: test accuracy {accuracy:.4f}", flush=True)


memory = tf.data.Dataset.from_tensor_slices((images[:1400], labels[:1400]))
one = tf.data.TextLineDataset(files[:1]).map(parse).batch(batch)
runtime.shard(one, "file")  # too few: it says so
texts = tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TextLineDataset, cycle_length=2)
fit("file", texts.map(parse).shuffle(700).repeat().batch(batch), 4, steps_per_epoch=1400 // batch)
fit("data", memory.shuffle(1400, seed=1).batch(batch, drop_remainder=True), 4)  # an end of its own
fit("off", memory.shuffle(1400).repeat(4).batch(batch), 4, steps_per_epoch=1400 // batch)  # a longer one
