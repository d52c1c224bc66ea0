"""Train on handwritten digits with Horovod and Keras fit.

Every rank runs this program and has the whole model; the ranks average their gradients. Horovod tells each process its
rank, both over Gloo and under mpirun. Run by itself, the program is the only rank:
python train.py --output /tmp/digits
"""

from __future__ import annotations

import argparse
import os

import horovod.tensorflow.keras as hvd
import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with Horovod")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank")
    parser.add_argument("--output", default=os.environ.get("TFCTL_OUTPUT", "output"))
    args = parser.parse_args()

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:  # use one of the visible GPUs
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    print(f"rank {hvd.rank()} of {hvd.size()}, {hvd.local_rank()} on its host", flush=True)
    train_x, test_x, train_y, test_y = load_digits()
    images = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shard(hvd.size(), hvd.rank())

    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # start all ranks with the weights of rank 0
        hvd.callbacks.MetricAverageCallback(),
    ]
    if hvd.rank() == 0:  # only one rank writes
        callbacks += [
            tf.keras.callbacks.ModelCheckpoint(f"{args.output}/checkpoints/ckpt-{{epoch}}", save_weights_only=True),
            tf.keras.callbacks.TensorBoard(f"{args.output}/summaries"),
        ]
    model.fit(
        images.shuffle(len(train_x)).repeat().batch(args.batch_size),
        epochs=args.epochs,
        steps_per_epoch=len(train_x) // args.batch_size // hvd.size(),  # the same number in every rank
        verbose=2 if hvd.rank() == 0 else 0,
        callbacks=callbacks,
    )
    if hvd.rank() == 0:
        _, accuracy = model.evaluate(test_x, test_y, verbose=0)
        print(f"test accuracy {accuracy:.4f}", flush=True)
    print(f"rank {hvd.rank()}: done", flush=True)


def load_digits() -> list:
    """Return 1,797 grey images of 8x8 pixels, scaled to 0..1, and their labels: [train_x, test_x, train_y, test_y]."""
    from sklearn import datasets, model_selection

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    main()
