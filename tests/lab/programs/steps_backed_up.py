"""Keras fit of one long epoch on a group of workers, with a backup every few steps."""

import time

import tensorflow as tf
from sklearn.datasets import load_digits

import tfctl_runtime as runtime

STEPS = 300  # of 50 ms and more
first_step = True


def print_step(batch, _logs):
    """Print the first step of this process and every tenth."""
    global first_step
    if first_step or batch % 10 == 0:
        print("begins at step" if first_step else "step", batch, flush=True)
    first_step = False
    time.sleep(0.05)


with runtime.strategy().scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(10, input_shape=(64,))])
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
images, labels = load_digits(return_X_y=True)
data = tf.data.Dataset.from_tensor_slices((images / 16, labels)).shuffle(1797, seed=1).repeat().batch(64)
callbacks = [*runtime.callbacks(backup_steps=10), tf.keras.callbacks.LambdaCallback(on_train_batch_begin=print_step)]
seen = model.fit(runtime.shard(data), epochs=1, steps_per_epoch=STEPS, verbose=0, callbacks=callbacks)
print(f"loss {seen.history['loss'][0]:.4f}", flush=True)
