"""Train on handwritten digits with MirroredStrategy: one process on all GPUs of one host.

On a host without GPUs, it uses two logical CPU devices instead.
"""

from __future__ import annotations

import argparse
import os

import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with MirroredStrategy")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and device")
    parser.add_argument("--output", default=os.environ.get("TFCTL_OUTPUT", "output"))
    args = parser.parse_args()

    strategy = tf.distribute.MirroredStrategy(devices())
    batch = args.batch_size * strategy.num_replicas_in_sync  # the global batch, which the strategy divides
    print(f"{strategy.num_replicas_in_sync} replicas, batches of {batch}", flush=True)
    train_x, test_x, train_y, test_y = load_digits()
    with strategy.scope():  # variables created here are mirrored on every device
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),
                tf.keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=tf.keras.optimizers.Adam(0.01),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    weights = f"{args.output}/checkpoints/ckpt-{{epoch}}.weights.h5"  # Keras 3 requires this suffix
    model.fit(
        tf.data.Dataset.from_tensor_slices((train_x, train_y)).shuffle(len(train_x)).batch(batch),
        epochs=args.epochs,
        verbose=2,
        callbacks=[
            tf.keras.callbacks.BackupAndRestore(f"{args.output}/backup"),  # a restarted task resumes from here
            tf.keras.callbacks.ModelCheckpoint(weights, save_weights_only=True),
            tf.keras.callbacks.TensorBoard(f"{args.output}/summaries"),
        ],
    )
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)
    print(f"test accuracy {accuracy:.4f}", flush=True)


def devices() -> list[str] | None:
    """Return None, which means all GPUs, or the names of two logical CPUs if there is no GPU."""
    if tf.config.list_physical_devices("GPU"):
        return None
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["CPU:0", "CPU:1"]


def load_digits() -> list:
    """Return 1,797 grey images of 8x8 pixels, scaled to 0..1, and their labels: [train_x, test_x, train_y, test_y]."""
    from sklearn import datasets, model_selection

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    main()
