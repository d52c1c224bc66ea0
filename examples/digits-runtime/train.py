"""Train on handwritten digits with Keras fit: one script for every strategy, and for one machine.

Five lines make the difference: those with `runtime`. The rest is a plain Keras program.
To run it by itself: python train.py, with tfctl_runtime on PYTHONPATH.
"""

import argparse

import tensorflow as tf
from sklearn import datasets, model_selection

import tfctl_runtime as runtime


def main():
    parser = argparse.ArgumentParser(description="Train on handwritten digits with Keras fit")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()

    runtime.serve_forever_if_needed()
    with runtime.strategy().scope():
        model = build_model()
    train_x, test_x, train_y, test_y = load_digits()
    # Without a seed, each worker draws from all images in an order of its own.
    dataset = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shuffle(len(train_x))
    dataset = dataset.repeat().batch(args.batch_size)
    steps = len(train_x) // args.batch_size
    callbacks = runtime.callbacks()
    model.fit(runtime.shard(dataset, "off"), epochs=args.epochs, steps_per_epoch=steps, verbose=2, callbacks=callbacks)

    accuracy = tf.reduce_mean(tf.cast(tf.argmax(model(test_x), axis=1) == test_y, tf.float32))
    print(f"test accuracy {float(accuracy):.4f}", flush=True)


def build_model():
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
    return model


def load_digits():
    """Return 1,797 grey images of 8x8 pixels, scaled to 0..1, and their labels: [train_x, test_x, train_y, test_y]."""
    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    main()
