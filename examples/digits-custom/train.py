"""Run one of several trials: train alone, with the learning rate for the task's index, and save the score."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import tensorflow as tf

RATES = [0.1, 0.01, 0.001, 0.0001]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with one of several learning rates")
    parser.add_argument("--rate", type=int, default=0, help=f"index into {RATES}")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("TFCTL_OUTPUT", "output")))
    args = parser.parse_args()
    rate = RATES[args.rate % len(RATES)]

    train_x, test_x, train_y, test_y = load_digits()
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    model.fit(train_x, train_y, epochs=args.epochs, verbose=2)
    _, accuracy = model.evaluate(test_x, test_y, verbose=0)
    print(f"rate {rate}: test accuracy {accuracy:.4f}", flush=True)
    args.output.mkdir(parents=True, exist_ok=True)
    score = args.output / f"rate-{rate}.json"
    score.with_suffix(".new").write_text(json.dumps({"rate": rate, "accuracy": float(accuracy)}))
    score.with_suffix(".new").rename(score)  # atomic: the chief never reads half a file


def load_digits() -> list:
    """Return 1,797 grey images of 8x8 pixels, scaled to 0..1, and their labels: [train_x, test_x, train_y, test_y]."""
    from sklearn import datasets, model_selection

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    main()
