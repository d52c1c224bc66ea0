"""Train on handwritten digits with MultiWorkerMirroredStrategy.

The same program runs as every worker and has the whole model; the workers sum their gradients. TF_CONFIG tells each
process its role. After each epoch a backup is saved, from which the workers resume if one fails. Only the files of the
chief (or worker 0) are kept. The others must save too, and discard theirs.
Without TF_CONFIG, the program trains on this machine alone: python train.py --output /tmp/digits
"""

from __future__ import annotations

import argparse
import os
import tempfile

import numpy as np
import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with MultiWorkerMirroredStrategy")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and replica")
    parser.add_argument("--shard", choices=["auto", "data", "off"], default="data", help="AutoShardPolicy")
    parser.add_argument("--communication", choices=["auto", "ring", "nccl"], default="auto", help="how to sum")
    parser.add_argument("--output", default=os.environ.get("TFCTL_OUTPUT", "output"), help="shared by all hosts")
    args = parser.parse_args()

    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type == "evaluator":
        evaluate(args)
    else:
        train(cluster, args)


def train(cluster: tf.distribute.cluster_resolver.ClusterResolver, args: argparse.Namespace) -> None:
    how = tf.distribute.experimental.CommunicationImplementation[args.communication.upper()]
    options = tf.distribute.experimental.CommunicationOptions(implementation=how)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster, options)  # must come before any TensorFlow operation
    name = f"{cluster.task_type or 'worker'} {cluster.task_id or 0}"
    is_chief = name == ("chief 0" if "chief" in cluster.cluster_spec().jobs else "worker 0")
    train_x, test_x, train_y, test_y = load_digits()
    batch = args.batch_size * strategy.num_replicas_in_sync  # the global batch, which the strategy divides
    print(f"{name}: {strategy.num_replicas_in_sync} replicas, batches of {batch}", flush=True)

    with strategy.scope():
        model = build_model()
    with tempfile.TemporaryDirectory() as scratch:
        own = args.output if is_chief else scratch
        model.fit(
            batches(train_x, train_y, batch, args.shard),
            epochs=args.epochs,
            steps_per_epoch=len(train_x) // batch,  # the same number in every worker
            verbose=2,
            callbacks=[
                tf.keras.callbacks.BackupAndRestore(f"{args.output}/backup"),  # only the chief writes
                tf.keras.callbacks.ModelCheckpoint(f"{own}/checkpoints/ckpt-{{epoch}}", save_weights_only=True),
                tf.keras.callbacks.TensorBoard(f"{own}/summaries"),
            ],
        )
    if is_chief:
        answers = tf.argmax(model(test_x), axis=1)
        accuracy = tf.reduce_mean(tf.cast(answers == test_y, tf.float32))
        print(f"test accuracy {float(accuracy):.4f}", flush=True)
    print(f"{name}: done", flush=True)


def batches(images: np.ndarray, labels: np.ndarray, size: int, policy: str) -> tf.data.Dataset:
    """Return endless batches. Shuffle with a seed if workers share each batch: they need the same order of images."""
    seed = None if policy == "off" else 1
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=seed).repeat().batch(size)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy.upper()]
    return data.with_options(options)


def evaluate(args: argparse.Namespace) -> None:
    """Score each new checkpoint of the chief. Return after that of the last epoch."""
    _, test_x, _, test_y = load_digits()
    tf.get_logger().setLevel("ERROR")  # no warnings about the unused optimizer part of checkpoints
    tf.keras.utils.SidecarEvaluator(
        build_model(),
        tf.data.Dataset.from_tensor_slices((test_x, test_y)).batch(60),
        checkpoint_dir=f"{args.output}/checkpoints",
        max_evaluations=args.epochs,
    ).start()


def build_model() -> tf.keras.Model:
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


def load_digits() -> list:
    """Return 1,797 grey images of 8x8 pixels, scaled to 0..1, and their labels: [train_x, test_x, train_y, test_y]."""
    from sklearn import datasets, model_selection

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    main()
