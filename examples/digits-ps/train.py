"""Handwritten digits with TensorFlow 2's ParameterServerStrategy and Keras fit.

The same program runs as every task; TF_CONFIG says which one this process is. A ps holds variables and a worker
computes, both until they are stopped. The chief builds the model, hands the steps out, saves and evaluates.
Without TF_CONFIG it trains on this machine alone: python train.py --output /tmp/digits
"""

from __future__ import annotations

import argparse
import os

import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description="Handwritten digits with ParameterServerStrategy")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="images in one step of one worker")
    parser.add_argument("--output", default=os.environ.get("TFCTL_OUTPUT", "output"), help="all hosts share it")
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # else it warns of retracing at every checkpoint

    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("ps", "worker"):
        serve(cluster)
    else:
        train(cluster, args)


def serve(cluster: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Does what the chief asks until the process is stopped."""
    server = tf.distribute.Server(cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id)
    print(f"{cluster.task_type} {cluster.task_id} serves at {server.target}", flush=True)
    server.join()


def train(cluster: tf.distribute.cluster_resolver.ClusterResolver, args: argparse.Namespace) -> None:
    if cluster.cluster_spec():
        strategy = tf.distribute.ParameterServerStrategy(cluster)
    else:
        strategy = tf.distribute.get_strategy()  # no cluster: this process alone
    train_x, test_x, train_y, test_y = load_digits()

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Runs on every worker: each draws from all the images, in an order of its own, without end."""
        images = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shuffle(len(train_x)).repeat()
        return images.batch(context.get_per_replica_batch_size(args.batch_size)).prefetch(tf.data.AUTOTUNE)

    with strategy.scope():  # the variables made in here live on the ps tasks
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
    model.fit(
        tf.keras.utils.experimental.DatasetCreator(batches),
        epochs=args.epochs,
        steps_per_epoch=len(train_x) // args.batch_size,  # of all workers together
        verbose=2,
        callbacks=[
            tf.keras.callbacks.BackupAndRestore(f"{args.output}/backup"),  # a restarted chief goes on from here
            tf.keras.callbacks.ModelCheckpoint(f"{args.output}/checkpoints/ckpt-{{epoch}}", save_weights_only=True),
            tf.keras.callbacks.TensorBoard(f"{args.output}/summaries"),
        ],
    )

    # Keras would spread an evaluation over the workers, which draw at random. The chief sees each test image once.
    answers = tf.argmax(model(test_x), axis=1)
    accuracy = tf.reduce_mean(tf.cast(answers == test_y, tf.float32))
    print(f"test accuracy {float(accuracy):.4f}", flush=True)


def load_digits() -> list:
    """1,797 grey images of 8x8 pixels in 0..1 and what they show: [train_x, test_x, train_y, test_y]."""
    from sklearn import datasets, model_selection  # the chief alone needs it

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    main()
