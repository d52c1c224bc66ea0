"""Train a small model without an end, by the strategy that the first word names. One task, which the second word names,
has the fault that the third word names: `import`, `input` (its input waits for a FIFO), `spin`, `disk` or `none`."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

strategy_name, faulty, fault = sys.argv[1:4]
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "worker", "index": 0})
rank = os.environ.get("HOROVOD_RANK")
me = f"worker/{rank}" if rank else f"{task['type']}/{task['index']}"
fault = fault if me == faulty else "none"
FIFO, FULL = Path("/srv/tfctl/faults/fifo"), Path(os.environ["TFCTL_OUTPUT"], "checkpoint")
if fault == "import":
    import einops  # type: ignore[import-not-found]  # noqa: F401  it is not installed


def rows():
    for number in range(10**9):
        if fault == "input" and number == 400:
            FIFO.read_bytes()
        yield np.random.rand(16).astype("float32"), np.array([number % 2], "float32")


def trouble(step):
    """What goes wrong in a step of the program itself."""
    if fault == "spin" and step == 3:
        while True:
            step += 1
    if fault == "disk":
        with FULL.open("ab") as file:
            file.write(bytes(1 << 20))


def dataset():
    types = (tf.TensorSpec(16), tf.TensorSpec(1))
    data = tf.data.Dataset.from_generator(rows, output_signature=types).batch(8)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


def network():
    return tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(1)])


class Trouble(tf.keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002
        trouble(epoch)


def keras(strategy):
    with strategy.scope():
        model = network()
        model.compile("sgd", "mse")
    model.fit(dataset(), epochs=10**6, steps_per_epoch=20, verbose=2, callbacks=[Trouble()])


def horovod():
    import horovod.tensorflow.keras as hvd

    hvd.init()
    model = network()
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
    model.fit(dataset(), epochs=10**6, steps_per_epoch=20, verbose=2, callbacks=[Trouble()])


def parameter_server():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("ps", "worker"):
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        )
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = network(), tf.keras.optimizers.legacy.SGD(0.01)
    data = coordinator.create_per_worker_dataset(lambda: dataset().repeat())

    @tf.function
    def step(iterator):
        def replica(features, labels):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(features) - labels))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss

        return strategy.run(replica, args=next(iterator))

    iterator = iter(data)
    for epoch in range(10**6):
        for _ in range(10):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        print(f"epoch {epoch}", flush=True)
        trouble(epoch)


def tf1_ps():
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    server = tf1.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
    with tf1.device(
        tf1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task['index']}")
    ):
        step = tf1.train.get_or_create_global_step()
        weights = tf1.get_variable("w", [16, 1])
        features = tf1.placeholder(tf.float32, [8, 16])
        loss = tf.reduce_mean(tf.square(tf.matmul(features, weights) - 1.0))
        train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    source = rows()
    with tf1.train.MonitoredTrainingSession(server.target, is_chief=task["index"] == 0) as session:
        for number in range(10**9):
            batch = [next(source)[0] for _ in range(8)]
            session.run(train, {features: batch})
            if number % 20 == 0:
                print(f"step {number}", flush=True)
                trouble(number // 20)


def estimator():
    tf1 = tf.compat.v1

    def model(features, labels, mode):
        weights = tf1.get_variable("w", [16, 1])
        loss = tf.reduce_mean(tf.square(tf.matmul(features, weights) - labels))
        train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=tf1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    class Trouble(tf.estimator.SessionRunHook):  # type: ignore[misc]
        number = 0

        def after_run(self, run_context, run_values):  # noqa: ARG002
            self.number += 1
            if self.number % 20 == 0:
                print(f"step {self.number}", flush=True)
                trouble(self.number // 20)

    config = tf.estimator.RunConfig(os.environ["TFCTL_OUTPUT"] + "/model")
    training = tf.estimator.TrainSpec(dataset, max_steps=10**9, hooks=[Trouble()])
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(model, config=config), training, tf.estimator.EvalSpec(dataset, steps=1)
    )


if strategy_name == "multi_worker_mirrored":
    keras(tf.distribute.MultiWorkerMirroredStrategy())
elif strategy_name == "mirrored":
    keras(tf.distribute.MirroredStrategy())
else:
    {"parameter_server": parameter_server, "tf1_ps": tf1_ps, "estimator": estimator, "horovod": horovod}[
        strategy_name
    ]()
