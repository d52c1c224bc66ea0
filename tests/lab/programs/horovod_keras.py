"""Horovod as its guide to Keras in TensorFlow 2 has it: a distributed optimizer, callbacks. Python 3.6 syntax.

Linear regression of y = 3 x + 2. Each rank begins with weights of its own and sees y beside it, by offsets that sum to
nothing: all find it only if weights are broadcast and gradients averaged.
"""

import sys

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
print(f"tensorflow {tf.__version__} on python {sys.version_info[0]}.{sys.version_info[1]}", flush=True)
print(f"rank {hvd.rank()} of {hvd.size()}, {hvd.local_rank()} on its host", flush=True)
gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

x = np.linspace(0, 1, 64, dtype="float32")[:, None]
y = 3 * x + 2 + hvd.rank() - (hvd.size() - 1) / 2
own = tf.keras.initializers.Constant(float(hvd.rank()))
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,), kernel_initializer=own, bias_initializer=own)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.3))
# TensorFlow before 2.4 averages only with this argument; later releases do not need it.
old = tuple(int(part) for part in tf.__version__.split(".")[:2]) < (2, 4)
model.compile(optimizer=optimizer, loss="mse", **({"experimental_run_tf_function": False} if old else {}))

callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
if hvd.rank() == 0:  # one writes for all
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(sys.argv[1] + "/{epoch}", save_weights_only=True))
dataset = tf.data.Dataset.from_tensors((x, y)).repeat()
model.fit(dataset, epochs=4, steps_per_epoch=100, verbose=2 if hvd.rank() == 0 else 0, callbacks=callbacks)
w, b = (float(weights.ravel()[0]) for weights in model.get_weights())
print(f"w {w:.3f}, b {b:.3f}", flush=True)
