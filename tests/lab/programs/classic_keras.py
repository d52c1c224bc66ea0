"""Keras on TensorFlow 2.0, as its guide on several workers has it; Python 3.6 syntax.

Linear regression of y = 3 x + 2.
"""

import sys

import numpy as np
import tensorflow as tf

import tfctl_runtime

strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
print(f"tensorflow {tf.__version__} on python {sys.version_info[0]}.{sys.version_info[1]}", flush=True)
print(f"chief: {tfctl_runtime.is_chief()}, replicas: {strategy.num_replicas_in_sync}", flush=True)
x = np.random.RandomState(0).rand(640, 1).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, 3 * x + 2)).repeat().batch(32)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.3), loss="mse")
history = model.fit(dataset, epochs=10, steps_per_epoch=20, verbose=2)
print(f"loss {history.history['loss'][-1]:.6f}", flush=True)
