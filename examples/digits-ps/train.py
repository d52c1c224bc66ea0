"""Train on handwritten digits with TensorFlow 2's ParameterServerStrategy and Keras fit.

The same program runs as every task. TF_CONFIG tells each process its role. A ps holds variables and a worker computes,
both until they are stopped. The chief builds the model, assigns the steps to workers, saves and evaluates.
Without TF_CONFIG, the program trains on this machine alone: python train.py --output /tmp/digits
"""

from __future__ import annotations

import argparse
import os

import tensorflow as tf


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with ParameterServerStrategy")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and worker")
    parser.add_argument("--output", default=os.environ.get("TFCTL_OUTPUT", "output"), help="shared by all hosts")
    args = parser.parse_args()
    tf.get_logger().setLevel("ERROR")  # suppress a warning about retracing at every checkpoint

    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("ps", "worker"):
        serve(cluster)
    else:
        train(cluster, args)


def serve(cluster: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Serve the chief until the process is stopped."""
    server = tf.distribute.Server(cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id)
    print(f"{cluster.task_type} {cluster.task_id} serves at {server.target}", flush=True)
    server.join()


def train(cluster: tf.distribute.cluster_resolver.ClusterResolver, args: argparse.Namespace) -> None:
    if cluster.cluster_spec():
        strategy = tf.distribute.ParameterServerStrategy(cluster)
    else:
        strategy = tf.distribute.get_strategy()  # no cluster: train in this process
    train_x, test_x, train_y, test_y = load_digits()

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Return all images, repeated without end. It runs on every worker, and each shuffles in its own order."""
        images = tf.data.Dataset.from_tensor_slices((train_x, train_y)).shuffle(len(train_x)).repeat()
        return images.batch(context.get_per_replica_batch_size(args.batch_size)).prefetch(tf.data.AUTOTUNE)

    with strategy.scope():  # variables created here are stored on the ps tasks
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
        steps_per_epoch=len(train_x) // args.batch_size,  # steps of all workers together
        verbose=2,
        callbacks=[
            tf.keras.callbacks.BackupAndRestore(f"{args.output}/backup"),  # a restarted chief resumes from here
            tf.keras.callbacks.ModelCheckpoint(f"{args.output}/checkpoints/ckpt-{{epoch}}", save_weights_only=True),
            tf.keras.callbacks.TensorBoard(f"{args.output}/summaries"),
        ],
    )

    # Keras would distribute the evaluation over workers, which draw images at random. The chief uses each image once.
    answers = tf.argmax(model(test_x), axis=1)
    accuracy = tf.reduce_mean(tf.cast(answers == test_y, tf.float32))
    print(f"test accuracy {float(accuracy):.4f}", flush=True)


def load_digits() -> list:
    """Return 1,797 grey images of 8x8 pixels, scaled to 0..1, and their labels: [train_x, test_x, train_y, test_y]."""
    from sklearn import datasets, model_selection  # only the chief needs it

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    return model_selection.train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


if __name__ == "__main__":
    main()
