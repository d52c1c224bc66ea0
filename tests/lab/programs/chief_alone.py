"""Keras fit by ParameterServerStrategy, written for the chief alone: who serves it runs no line of this.

An evaluator beside it scores its checkpoints: python chief_alone.py OUTPUT --evaluate
"""

import sys

import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

import tfctl_runtime as runtime

EPOCHS, STEPS = 4, 60
images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = (images / 16).astype("float32")


def build_model():
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, "relu", input_shape=(64,)), tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def dataset_fn(context):
    data = tf.data.Dataset.from_tensor_slices((images[:1400], labels[:1400]))
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.shuffle(1400).repeat().batch(context.get_per_replica_batch_size(64))


def train(output):
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=1024, max_shards=2)
    with runtime.strategy(variable_partitioner=partitioner).scope():
        model = build_model()
    for part in model.layers[0].kernel.variables:
        print(part.name, tuple(part.shape), "on", part.device, flush=True)
    model.fit(
        tf.keras.utils.experimental.DatasetCreator(dataset_fn),
        epochs=EPOCHS,
        steps_per_epoch=STEPS,
        verbose=2,
        callbacks=runtime.callbacks(output),
    )


def evaluate(output):
    tf.get_logger().setLevel("ERROR")  # else it warns that it has no use for the optimizer's part of a checkpoint
    test = tf.data.Dataset.from_tensor_slices((images[1400:], labels[1400:])).batch(100)
    tf.keras.utils.SidecarEvaluator(build_model(), test, f"{output}/checkpoints", max_evaluations=EPOCHS).start()


if __name__ == "__main__":
    evaluate(sys.argv[1]) if "--evaluate" in sys.argv else train(sys.argv[1])
