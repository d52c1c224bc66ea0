"""ParameterServerStrategy with a loop of the chief's own: ClusterCoordinator, and variables cut over the ps tasks."""

import os

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id).join()

images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = (images / 16).astype("float32")

shards = resolver.cluster_spec().num_tasks("ps")
partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(num_shards=shards)
strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

with strategy.scope():
    weights = tf.Variable(tf.zeros([64, 10]), name="weights")
    biases = tf.Variable(tf.zeros([10]), name="biases")
    steps_done = tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
for variable in weights.variables:
    print(variable.name, tuple(variable.shape), "on", variable.device, flush=True)


def batches():
    return tf.data.Dataset.from_tensor_slices((images[:1400], labels[:1400])).shuffle(1400).repeat().batch(50)


def logits_of(x):
    return tf.matmul(x, tf.convert_to_tensor(weights)) + tf.convert_to_tensor(biases)


@tf.function
def step(iterator):
    def replica(x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits_of(x))
            loss = tf.reduce_mean(losses)
        parts = [*weights.variables, *biases.variables]
        for part, gradient in zip(parts, tape.gradient(loss, parts)):
            part.assign_sub(0.5 * tf.convert_to_tensor(gradient))
        steps_done.assign_add(1)
        return loss

    return strategy.run(replica, args=next(iterator))


iterator = iter(coordinator.create_per_worker_dataset(strategy.distribute_datasets_from_function(lambda _: batches())))
checkpoints = tf.train.CheckpointManager(
    tf.train.Checkpoint(weights=weights, biases=biases), os.environ["TFCTL_OUTPUT"] + "/checkpoints", max_to_keep=2
)
for _ in range(4):
    for _ in range(100):
        loss = coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    checkpoints.save()
    right = tf.equal(tf.argmax(logits_of(images[1400:]), axis=1), labels[1400:])
    accuracy = float(tf.reduce_mean(tf.cast(right, tf.float32)))
    print(f"{int(steps_done)} steps, loss {loss.fetch():.3f}, test accuracy {accuracy:.4f}", flush=True)
