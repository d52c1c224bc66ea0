"""Train ResNet-20 or ResNet-56 on CIFAR-10, as in "Deep Residual Learning for Image Recognition" (He et al., 2015).

The job file alone decides how the training is distributed: mirrored, multi_worker_mirrored, parameter_server or
horovod. tfctl_runtime makes the difference. Run by itself, the script trains on this machine, with tfctl_runtime on
PYTHONPATH: python train.py --data cifar-10-batches-bin
"""

from __future__ import annotations

import argparse
import math

import tensorflow as tf

import tfctl_runtime as runtime

DATA = "/var/lib/tfctl/datasets/cifar10-binary/cifar-10-batches-bin"
SIZE, CLASSES = 32, 10
RECORD = 1 + 3 * SIZE * SIZE  # bytes: the label, then the red, the green and the blue pixels
MOMENTUM = 0.9
layers = tf.keras.layers


def main() -> None:
    args = arguments()
    runtime.serve_forever_if_needed()
    strategy = runtime.strategy()
    if args.precision == "mixed_float16" and isinstance(strategy, tf.distribute.ParameterServerStrategy):
        # The losses would have to be scaled, and Keras scales none under this strategy.
        raise SystemExit("--precision mixed_float16 cannot be used with parameter_server: use mixed_bfloat16")
    tf.keras.mixed_precision.set_global_policy(args.precision)
    train_files = tf.io.gfile.glob(f"{args.data}/data_batch_*.bin")
    test_files = tf.io.gfile.glob(f"{args.data}/test_batch.bin")
    if not (train_files and test_files):
        raise SystemExit(f"{args.data} does not contain data_batch_*.bin and test_batch.bin: see README.md")
    replicas = runtime.replicas()
    batch = args.batch_size * replicas
    steps = args.steps_per_epoch or steps_in(images_in(train_files), batch)
    print(f"ResNet-{args.depth}, {replicas} replicas, batches of {batch}, {steps} steps per epoch", flush=True)

    evaluated = runtime.dataset(lambda context: test_images(test_files, batch, context))
    with strategy.scope():
        model = resnet(args.depth)
        model.compile(
            optimizer=sgd(args, batch, steps),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **exact_evaluation(strategy, test_files),
        )
    history = model.fit(
        runtime.dataset(lambda context: training_images(train_files, batch, context)),
        epochs=args.epochs,
        steps_per_epoch=steps,
        validation_data=evaluated,
        validation_steps=steps_of_evaluation(evaluated, images_in(test_files), batch),
        verbose=2 if runtime.is_chief() else 0,
        callbacks=[*runtime.callbacks(backup_steps=args.backup_steps), Begin()],
    )
    if runtime.is_chief() and history.epoch:
        print(f"test accuracy {history.history['val_accuracy'][-1]:.4f}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a ResNet on CIFAR-10")
    parser.add_argument("--data", default=DATA, help="the directory of the files *.bin, on every host")
    parser.add_argument(
        "--depth",
        type=int,
        choices=range(8, 1203, 6),
        metavar="20|56|...",
        default=20,
        help="layers with weights: 6 n + 2",
    )
    parser.add_argument("--epochs", type=int, default=164, help="the default is 64,000 steps of 128 images")
    parser.add_argument("--steps-per-epoch", type=int, help="default: all images once")
    parser.add_argument("--batch-size", type=int, default=128, help="images per step and replica")
    parser.add_argument("--learning-rate", type=float, default=0.1, help="the highest, for a global batch of 128")
    parser.add_argument("--warmup-epochs", type=float, default=5)
    parser.add_argument("--precision", choices=["float32", "mixed_float16", "mixed_bfloat16"], default="float32")
    parser.add_argument("--backup-steps", type=int, help="default: back up after each epoch")
    return parser.parse_args()


def steps_in(images: int, batch: int) -> int:
    """Return how many whole batches there are."""
    if images < batch:
        raise SystemExit(f"{images} images are fewer than a batch of {batch}: use a smaller --batch-size")
    return images // batch


def sgd(args: argparse.Namespace, batch: int, steps: int) -> tf.keras.optimizers.Optimizer:
    """Return SGD whose learning rate is proportional to the global batch: it rises linearly, then falls as a cosine."""
    warmup = max(1, round(args.warmup_epochs * steps))
    rate = tf.keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps=max(1, args.epochs * steps - warmup),
        warmup_target=args.learning_rate * batch / 128,
        warmup_steps=warmup,
    )
    # A weight decay of 1e-4 in the paper's form, where it is part of the gradient, to which momentum applies.
    decay = 1e-4 / (1 - MOMENTUM)
    optimizer = runtime.optimizer(tf.keras.optimizers.SGD(rate, momentum=MOMENTUM, weight_decay=decay))
    optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
    return optimizer


def resnet(depth: int) -> tf.keras.Model:
    """Return the network for images of 32x32 pixels: three stages of (depth - 2) / 6 blocks of two convolutions."""
    images = layers.Input((SIZE, SIZE, 3))
    outputs = layers.ReLU()(convolution(images, 16))
    for filters in (16, 32, 64):
        for block in range((depth - 2) // 6):
            outputs = residual(outputs, filters, stride=2 if filters > 16 and block == 0 else 1)
    outputs = layers.GlobalAveragePooling2D()(outputs)
    # Logits need float32 also in mixed precision.
    return tf.keras.Model(images, layers.Dense(CLASSES, kernel_initializer="he_normal", dtype="float32")(outputs))


def residual(inputs: tf.Tensor, filters: int, stride: int) -> tf.Tensor:
    outputs = layers.ReLU()(convolution(inputs, filters, stride=stride))
    outputs = convolution(outputs, filters)
    shortcut = inputs if stride == 1 else convolution(inputs, filters, kernel=1, stride=stride)
    return layers.ReLU()(layers.add([outputs, shortcut]))


def convolution(inputs: tf.Tensor, filters: int, kernel: int = 3, stride: int = 1) -> tf.Tensor:
    """Convolve, then normalize each batch."""
    convolve = layers.Conv2D(filters, kernel, stride, padding="same", use_bias=False, kernel_initializer="he_normal")
    return layers.BatchNormalization()(convolve(inputs))


def training_images(files: list[str], batch: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return this worker's share, repeated without end, each image shifted and mirrored at random."""
    images = records(files, context).cache().shuffle(50_000).repeat().map(decode, tf.data.AUTOTUNE)
    images = images.map(lambda image, label: (augment(image), label), tf.data.AUTOTUNE)
    return images.batch(context.get_per_replica_batch_size(batch), drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def test_images(files: list[str], batch: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
    images = records(files, context).map(decode, tf.data.AUTOTUNE)
    return images.batch(context.get_per_replica_batch_size(batch)).prefetch(tf.data.AUTOTUNE)


def records(files: list[str], context: tf.distribute.InputContext) -> tf.data.Dataset:
    found = tf.data.FixedLengthRecordDataset(sorted(files), RECORD)
    return found.shard(context.num_input_pipelines, context.input_pipeline_id)


def decode(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return an image with mean 0 and variance 1, and its label."""
    values = tf.io.decode_raw(record, tf.uint8)
    image = tf.transpose(tf.reshape(values[1:], (3, SIZE, SIZE)), (1, 2, 0))
    return tf.image.per_image_standardization(tf.cast(image, tf.float32)), tf.cast(values[0], tf.int64)


def augment(image: tf.Tensor) -> tf.Tensor:
    padded = tf.image.resize_with_crop_or_pad(image, SIZE + 8, SIZE + 8)
    return tf.image.random_flip_left_right(tf.image.random_crop(padded, (SIZE, SIZE, 3)))


def images_in(files: list[str]) -> int:
    return sum(tf.io.gfile.stat(file).length for file in files) // RECORD


def exact_evaluation(strategy: tf.distribute.Strategy, files: list[str]) -> dict[str, int]:
    """Return the argument of ``compile`` with which the workers of parameter_server evaluate each image once.

    Each file is evaluated by one worker. Without this argument, every worker would evaluate images at random.
    """
    exact = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    return {"pss_evaluation_shards": len(files)} if exact else {}


def steps_of_evaluation(evaluated: object, images: int, batch: int) -> int | None:
    """Return the argument of ``fit``: the steps that all workers take together, or None if the dataset simply ends.

    Each rank of horovod has a dataset of its own, and perhaps one batch more than another rank. With a number of steps
    that its dataset does not have, Keras would leave out the next evaluation of this rank, and the other ranks would
    wait for its results.
    """
    return None if isinstance(evaluated, tf.data.Dataset) else math.ceil(images / batch)


class Begin(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002
        """Print the step at which training begins. It is not 0 if a backup was restored."""
        print(f"training begins at step {int(tf.convert_to_tensor(self.model.optimizer.iterations))}", flush=True)


if __name__ == "__main__":
    main()
