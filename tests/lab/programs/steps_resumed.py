"""A group's own loop that saves every few steps; started anew it goes on from the step that was saved last."""

import os
import time

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

PER_WORKER, STEPS, EVERY = 32, int(os.environ.get("STEPS", 300)), 20
strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
is_chief = resolver.task_type in (None, "chief") or (resolver.task_type, resolver.task_id) == ("worker", 0)
images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = (images / 16).astype("float32")


def dataset_fn(context):
    size = context.get_per_replica_batch_size(PER_WORKER * strategy.num_replicas_in_sync)
    data = tf.data.Dataset.from_tensor_slices((images[:1400], labels[:1400])).shuffle(1400, seed=1).repeat()
    return data.shard(context.num_input_pipelines, context.input_pipeline_id).batch(size)


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(10, input_shape=(64,))])
    optimizer = tf.keras.optimizers.SGD(0.5)
step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
iterator = iter(strategy.distribute_datasets_from_function(dataset_fn))


@tf.function
def train_step(iterator):
    def replica(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            losses = tf.keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=PER_WORKER * strategy.num_replicas_in_sync)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, args=(next(iterator),)), axis=None)


kept = os.environ["TFCTL_OUTPUT"] + "/ckpt"
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
manager = tf.train.CheckpointManager(checkpoint, kept if is_chief else f"/tmp/ckpt-{os.getpid()}", max_to_keep=2)
latest = tf.train.latest_checkpoint(kept)
if latest:
    checkpoint.restore(latest)
print(f"begins at step {int(step)}", flush=True)
while int(step) < STEPS:
    loss = train_step(iterator)
    if int(step.assign_add(1)) % EVERY == 0:
        manager.save()
        print(f"step {int(step)}: loss {float(loss):.4f}", flush=True)
    time.sleep(float(os.environ.get("PAUSE", 0)))
right = tf.equal(tf.argmax(model(images[1400:]), axis=1), labels[1400:])
print(f"test accuracy {float(tf.reduce_mean(tf.cast(right, tf.float32))):.4f}", flush=True)
