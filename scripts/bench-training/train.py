"""Train a small model on invented data, and print the examples per second of the whole job. For scripts/bench training.

TFCTL_STRATEGY says which strategy it is. The first fit, with the compilation, is not measured. The second one also
records timings, so that the figures of `tfctl report` can be compared with those that are printed. Both leave out the
start of the fit, which takes one to two seconds: they measure from the end of its first step to that of its last. Under
parameter_server, where Keras accepts no callback for steps, both measure the whole fit.
"""

import os
import time

import tensorflow as tf

import tfctl_runtime as runtime

STEPS = int(os.environ.get("STEPS", "1000"))
#: Examples per step and computing task.
BATCH = 64


def model():
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", input_shape=(32, 32, 3)),
            layers.Conv2D(64, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(256, activation="relu"),
            layers.Dense(10),
        ]
    )


def data(batch):
    image, label = tf.random.stateless_uniform((batch, 32, 32, 3), (1, 2)), tf.zeros((batch,), tf.int64)
    dataset = tf.data.Dataset.from_tensors((image, label)).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


class Ends(tf.keras.callbacks.Callback):
    """Notes when each step ends (s)."""

    def __init__(self):
        super().__init__()
        self._supports_tf_logs = True  # Keras 2 otherwise waits for the logs' values after each step
        self.times = []

    def on_train_batch_end(self, *_):
        self.times.append(time.monotonic())


def measured(built, batch, at_once, callbacks=()):
    """Return the examples per second of one fit; ``at_once``: the examples of all tasks in each step."""
    dataset = data(batch)
    built.fit(dataset, epochs=1, steps_per_epoch=10, verbose=0, callbacks=list(callbacks))
    timings = runtime.timings(batch)
    if os.environ["TFCTL_STRATEGY"] == "parameter_server":
        began = time.monotonic()
        built.fit(dataset, epochs=1, steps_per_epoch=STEPS, verbose=0, callbacks=[timings])
        return STEPS * at_once / (time.monotonic() - began)
    ends = Ends()
    built.fit(dataset, epochs=1, steps_per_epoch=STEPS, verbose=0, callbacks=[ends, timings])
    return (len(ends.times) - 1) * at_once / (ends.times[-1] - ends.times[0])


def with_horovod():
    import horovod.tensorflow.keras as hvd

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    built = model()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    built.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    return measured(built, BATCH, BATCH * hvd.size(), callbacks), hvd.rank() == 0


def with_strategy():
    runtime.serve_forever_if_needed()
    strategy = runtime.strategy()
    with strategy.scope():
        built = model()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        built.compile(tf.keras.optimizers.SGD(0.01), loss)
    # Under parameter_server each step is one worker's, otherwise the batch is divided among all.
    led = os.environ["TFCTL_STRATEGY"] == "parameter_server"
    batch = BATCH if led else BATCH * strategy.num_replicas_in_sync
    return measured(built, batch, batch), runtime.is_chief()


if __name__ == "__main__":
    rate, first = with_horovod() if os.environ["TFCTL_STRATEGY"] == "horovod" else with_strategy()
    if first:
        print(f"throughput {rate:.2f}", flush=True)
