"""Horovod as its guide to TensorFlow 1 has it: a distributed optimizer, a hook that broadcasts. Python 3.6 syntax.

Linear regression of y = 3 x + 2. Each rank begins with weights of its own and sees y beside it, by offsets that sum to
nothing: all find it only if weights are broadcast and gradients averaged.
"""

import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
print(f"tensorflow {tf.__version__} on python {sys.version_info[0]}.{sys.version_info[1]}", flush=True)
print(f"rank {hvd.rank()} of {hvd.size()}, {hvd.local_rank()} on its host", flush=True)
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())

x = np.linspace(0, 1, 64, dtype="float32")
y = 3 * x + 2 + hvd.rank() - (hvd.size() - 1) / 2
w, b = (tf.get_variable(name, initializer=float(hvd.rank())) for name in "wb")
loss = tf.reduce_mean(tf.square(w * x + b - y))
optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.3))
train = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())

hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=400)]
checkpoints = sys.argv[1] if hvd.rank() == 0 else None  # one writes for all
with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoints, config=config, hooks=hooks) as session:
    while not session.should_stop():
        found = session.run([w, b, train])
print(f"w {found[0]:.3f}, b {found[1]:.3f}", flush=True)
