"""Keras fit on a group of workers, then each saves: the chief's model is kept, the others' thrown away."""

import json
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

per_worker_batch_size = 64
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
global_batch_size = per_worker_batch_size * num_workers


def mnist_dataset(batch_size):
    x_train, y_train = load_digits(return_X_y=True)
    x_train = np.float32(x_train / 16).reshape(-1, 8, 8)
    return tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(1797).repeat().batch(batch_size)


def build_and_compile_cnn_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer(input_shape=(8, 8)),
            tf.keras.layers.Reshape(target_shape=(8, 8, 1)),
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.1),
        metrics=["accuracy"],
    )
    return model


def _is_chief(task_type, task_id):
    return (task_type == "worker" and task_id == 0) or task_type is None


def write_filepath(filepath, task_type, task_id):
    if _is_chief(task_type, task_id):
        return filepath
    tf.io.gfile.makedirs(f"workertemp_{task_id}")
    return f"workertemp_{task_id}/{filepath}"


with strategy.scope():
    multi_worker_model = build_and_compile_cnn_model()
multi_worker_dataset = mnist_dataset(global_batch_size)
multi_worker_model.fit(multi_worker_dataset, epochs=4, steps_per_epoch=40, verbose=2)

resolver = strategy.cluster_resolver
multi_worker_model.save(write_filepath("keras-model", resolver.task_type, resolver.task_id))
if _is_chief(resolver.task_type, resolver.task_id):
    loaded = tf.keras.models.load_model("keras-model")
    images, labels = load_digits(return_X_y=True)
    answers = np.argmax(loaded(np.float32(images / 16).reshape(-1, 8, 8)), axis=1)
    print(f"test accuracy {np.mean(answers == labels):.4f}", flush=True)
else:
    tf.io.gfile.rmtree(f"workertemp_{resolver.task_id}")
