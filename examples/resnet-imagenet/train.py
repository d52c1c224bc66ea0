"""Train ResNet-50 on ImageNet, or on any images in TFRecord files of the same format (make_tfrecords.py).

The job file alone decides how the training is distributed: mirrored, multi_worker_mirrored, parameter_server or
horovod. tfctl_runtime makes the difference. Run by itself, the script trains on this machine, with tfctl_runtime on
PYTHONPATH: python train.py --data records

Augmentation, momentum, weight decay, epochs of warm-up and the highest learning rate are those of "Accurate, Large
Minibatch SGD" (Goyal et al., 2017). The rest differs from the paper, so do not expect exactly its accuracy:

* The learning rate rises from 0, and falls as a cosine. Labels are smoothed.
* The network is ResNet50 of tf.keras.applications. In its blocks, the first 1x1 convolution has the stride, not the 3x3
  one. Weights have Glorot's initialization, the scale of the last normalization of a block begins with 1, not 0, and
  normalization has a momentum of 0.99, not 0.9.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

import tfctl_runtime as runtime

DATA = "/var/lib/tfctl/datasets/imagenet-tfrecords"
MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of ImageNet's red, green and blue pixels
MOMENTUM = 0.9
CROP = 0.875  # the part of an image's shorter side that is used for evaluation: 224 of 256 pixels


def main() -> None:
    args = arguments()
    runtime.serve_forever_if_needed()
    strategy = runtime.strategy()
    if args.precision == "mixed_float16" and isinstance(strategy, tf.distribute.ParameterServerStrategy):
        # The losses would have to be scaled, and Keras scales none under this strategy.
        raise SystemExit("--precision mixed_float16 cannot be used with parameter_server: use mixed_bfloat16")
    tf.keras.mixed_precision.set_global_policy(args.precision)
    train, validation = Split.read(args.data, "train"), Split.read(args.data, "validation")
    replicas = runtime.replicas()
    batch = args.batch_size * replicas
    steps = args.steps_per_epoch or steps_in(train.images, batch)
    print(f"ResNet-50, {replicas} replicas, batches of {batch}, {steps} steps per epoch", flush=True)

    evaluated = runtime.dataset(lambda context: validation_images(validation, args.image_size, batch, context))
    with strategy.scope():
        model = resnet50(args.image_size, train.classes)
        model.compile(
            optimizer=sgd(args, batch, steps),
            loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=args.label_smoothing),
            metrics=["accuracy", tf.keras.metrics.TopKCategoricalAccuracy(5, name="top5")],
            **exact_evaluation(strategy, validation.files),
        )
    history = model.fit(
        runtime.dataset(lambda context: training_images(train, args.image_size, batch, context)),
        epochs=args.epochs,
        steps_per_epoch=steps,
        validation_data=evaluated,
        validation_steps=steps_of_evaluation(evaluated, validation.images, batch),
        verbose=2 if runtime.is_chief() else 0,
        callbacks=[*runtime.callbacks(backup_steps=args.backup_steps), Begin()],
    )
    if runtime.is_chief() and history.epoch:
        print(f"validation accuracy {history.history['val_accuracy'][-1]:.4f}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train ResNet-50 on ImageNet")
    parser.add_argument("--data", default=DATA, help="the directory of the TFRecord files, on every host")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps-per-epoch", type=int, help="default: all images once")
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and replica")
    parser.add_argument("--image-size", type=int, default=224, help="height and width in pixels")
    parser.add_argument("--learning-rate", type=float, default=0.1, help="the highest, for a global batch of 256")
    parser.add_argument("--warmup-epochs", type=float, default=5)
    parser.add_argument("--label-smoothing", type=float, default=0.1)
    parser.add_argument("--precision", choices=["float32", "mixed_float16", "mixed_bfloat16"], default="float32")
    parser.add_argument("--backup-steps", type=int, help="default: back up after each epoch")
    return parser.parse_args()


class Split(NamedTuple):
    files: list[str]
    images: int
    classes: int

    @classmethod
    def read(cls, folder: str, name: str) -> Split:
        """Return the TFRecord files of ``train`` or ``validation``, in the folder or in a folder below it.

        A file such as train.json, which make_tfrecords.py writes, has the numbers of files and images, and the classes.
        Without it, the numbers of images and classes are those of ImageNet.
        """
        files = sorted(tf.io.gfile.glob([f"{folder}/{name}-*-of-?????", f"{folder}/*/{name}-*-of-?????"]))
        if not files:
            raise SystemExit(f"{folder} does not contain {name}-00000-of-01024 and the like: see README.md")
        images, classes = {"train": 1_281_167, "validation": 50_000}[name], 1000
        description = f"{files[0].rpartition('/')[0]}/{name}.json"
        if tf.io.gfile.exists(description):
            with tf.io.gfile.GFile(description) as file:
                found = json.load(file)
            images, classes = found["images"], len(found["classes"])
            if len(files) != found["files"]:
                raise SystemExit(
                    f"{description} describes {found['files']} files, but there are {len(files)}: repeat the command "
                    "of make_tfrecords.py, which writes those that are missing, or copy all of them again"
                )
        return cls(files, images, classes)


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
        warmup_target=args.learning_rate * batch / 256,
        warmup_steps=warmup,
    )
    # A weight decay of 1e-4 in the paper's form, where it is part of the gradient, to which momentum applies.
    decay = 1e-4 / (1 - MOMENTUM)
    optimizer = runtime.optimizer(tf.keras.optimizers.SGD(rate, momentum=MOMENTUM, nesterov=True, weight_decay=decay))
    optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma"])
    return optimizer


def resnet50(size: int, classes: int) -> tf.keras.Model:
    base = tf.keras.applications.ResNet50(include_top=False, weights=None, input_shape=(size, size, 3), pooling="avg")
    # Logits need float32 also in mixed precision.
    return tf.keras.Model(base.input, tf.keras.layers.Dense(classes, dtype="float32")(base.output))


def training_images(split: Split, size: int, batch: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return this worker's share, repeated without end, each image cropped and mirrored at random.

    Each worker reads its own files if there are enough of them, else every n-th record of all files.
    """
    workers, index = context.num_input_pipelines, context.input_pipeline_id
    files = tf.data.Dataset.from_tensor_slices(split.files)
    by_file = len(split.files) >= workers
    if by_file:
        files = files.shard(workers, index).shuffle(len(split.files))
    records = files.repeat().interleave(
        tf.data.TFRecordDataset, cycle_length=min(16, len(split.files)), num_parallel_calls=tf.data.AUTOTUNE
    )
    if not by_file:  # all workers read the records in the same order
        records = records.shard(workers, index)
    images = records.shuffle(10_000).map(
        lambda record: decode(record, split.classes, lambda jpeg: random_crop(jpeg, size)), tf.data.AUTOTUNE
    )
    return images.batch(context.get_per_replica_batch_size(batch), drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def validation_images(split: Split, size: int, batch: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return this worker's share: every n-th image. The shares differ by one image at most."""
    records = tf.data.TFRecordDataset(split.files, num_parallel_reads=min(16, len(split.files)))
    records = records.shard(context.num_input_pipelines, context.input_pipeline_id)
    images = records.map(
        lambda record: decode(record, split.classes, lambda jpeg: central_crop(jpeg, size)), tf.data.AUTOTUNE
    )
    return images.batch(context.get_per_replica_batch_size(batch)).prefetch(tf.data.AUTOTUNE)


def decode(record: tf.Tensor, classes: int, crop: Callable[[tf.Tensor], tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return an image with mean 0 and variance 1, and its class as a one-hot vector. Labels in the files begin at 1."""
    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    image = (crop(features["image/encoded"]) - MEAN) / DEVIATION
    return image, tf.one_hot(features["image/class/label"] - 1, classes)


def random_crop(jpeg: tf.Tensor, size: int) -> tf.Tensor:
    """Decode a part of 8 % to 100 % of the image with an aspect ratio of 3/4 to 4/3, and mirror it at random."""
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg),
        tf.zeros([1, 0, 4]),
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.image.random_flip_left_right(cropped(jpeg, [begin[0], begin[1], extent[0], extent[1]], size))


def central_crop(jpeg: tf.Tensor, size: int) -> tf.Tensor:
    """Decode the square in the middle of the image."""
    shape = tf.io.extract_jpeg_shape(jpeg)
    side = tf.cast(CROP * tf.cast(tf.minimum(shape[0], shape[1]), tf.float32), tf.int32)
    return cropped(jpeg, [(shape[0] - side) // 2, (shape[1] - side) // 2, side, side], size)


def cropped(jpeg: tf.Tensor, window: list[tf.Tensor], size: int) -> tf.Tensor:
    """Decode only this part (top, left, height, width), which is faster than decoding all, and resize it."""
    image = tf.io.decode_and_crop_jpeg(jpeg, tf.stack(window), channels=3)
    return tf.ensure_shape(tf.image.resize(image, (size, size)), (size, size, 3))


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
