"""Convert images to TFRecord files such as train-00000-of-01024, the format that train.py reads.

    python make_tfrecords.py folder DIRECTORY --to RECORDS --split train --shards 8
        a directory with one subdirectory of JPEG or PNG files for each class

    python make_tfrecords.py imagenet --to RECORDS --train ILSVRC2012_img_train.tar \\
        --validation ILSVRC2012_img_val.tar --devkit ILSVRC2012_devkit_t12.tar.gz
        the files of ImageNet as its owner distributes them; they are not unpacked

    python make_tfrecords.py generate DIRECTORY
        no conversion: write small made-up images, in subdirectories train and validation, for the first command

Every record is a tf.train.Example with the keys image/encoded (JPEG), image/class/label (1, 2, ... in the order of the
class names), image/class/synset (the name), image/filename, image/height, image/width, image/format, image/colorspace
and image/channels. Beside the files, train.json or validation.json has the numbers of images and the class names.
Convert the images for training first: those for validation get the same labels.

A file gets its name when it has been read back and is complete. So after an interruption, the same command continues
with the files that are missing. Run it with a Python that has TensorFlow, such as that of a stack.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
SUFFIXES = (".jpeg", ".jpg", ".png")
#: ImageNet's numbers of files.
TRAIN_SHARDS, VALIDATION_SHARDS = 1024, 128


class Image(NamedTuple):
    """A JPEG or PNG file, or the part of a tar file that contains one. ``offset`` and ``size`` are in bytes."""

    path: Path
    offset: int
    size: int
    name: str
    synset: str

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


class Shard(NamedTuple):
    """A TFRecord file, its images, and their labels."""

    path: Path
    images: list[Image]
    labels: list[int]


class Problem(Exception):
    """What is wrong with the user's files, in one sentence."""


def main(words: list[str] | None = None) -> None:
    args = arguments(words)
    # TensorFlow would reserve the memory of all GPUs in each process. The others inherit the variable.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        if args.command == "generate":
            generate(args.directory, args.classes, args.images)
        elif args.command == "folder":
            convert(from_folder(args.directory), args.to, args.split, args.shards, args.processes)
        else:
            truth = ground_truth(args.devkit)
            convert(from_train_tar(args.train), args.to, "train", args.shards, args.processes)
            validation = from_validation_tar(args.validation, truth)
            convert(validation, args.to, "validation", args.validation_shards, args.processes)
    except (Problem, OSError, ImportError, tarfile.TarError) as error:
        raise SystemExit(f"make_tfrecords.py: {error}") from None
    except BrokenExecutor:
        raise SystemExit(
            "make_tfrecords.py: a process was killed, perhaps out of memory: use fewer --processes"
        ) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Convert images to TFRecord files")
    commands = parser.add_subparsers(dest="command", required=True)
    folder = commands.add_parser("folder", help="convert a directory with a subdirectory for each class")
    folder.add_argument("directory", type=Path)
    folder.add_argument("--split", default="train", help="train or validation: the beginning of the files' names")
    imagenet = commands.add_parser("imagenet", help="convert the tar files of ImageNet (ILSVRC 2012)")
    for name in ("train", "validation", "devkit"):
        imagenet.add_argument(f"--{name}", type=Path, required=True)
    imagenet.add_argument("--validation-shards", type=int, default=VALIDATION_SHARDS)
    for command in (folder, imagenet):
        command.add_argument("--to", type=Path, required=True, help="the directory for the TFRecord files")
        command.add_argument("--shards", type=int, default=TRAIN_SHARDS, help="the number of files")
        command.add_argument("--processes", type=int, default=os.cpu_count(), help="default: the number of CPUs")
    made = commands.add_parser("generate", help="generate small images for trying things out")
    made.add_argument("directory", type=Path)
    made.add_argument("--classes", type=int, default=4)
    made.add_argument("--images", type=int, default=64, help="images of each class for training; a quarter to evaluate")
    return parser.parse_args(words)


# Where the images are


def from_folder(directory: Path) -> list[Image]:
    images = [
        Image(path, 0, path.stat().st_size, path.name, folder.name)
        for folder in sorted(directory.iterdir())
        if folder.is_dir()
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    if not images:
        raise Problem(f"{directory} has no subdirectory with files {', '.join(SUFFIXES)}")
    return images


def from_train_tar(path: Path) -> list[Image]:
    """Return the images of a tar file that contains a tar file of images for each class, such as n01440764.tar."""
    images = []
    with tarfile.open(path, "r:") as outer:
        classes = [member for member in outer if member.isfile() and member.name.endswith(".tar")]
        for member in progress("index", classes, len(classes)):
            with tarfile.open(fileobj=outer.extractfile(member), mode="r:") as files:
                synset = Path(member.name).stem
                images += [in_tar(path, each, synset, member.offset_data) for each in files if each.isfile()]
    if not images:
        raise Problem(f"{path} contains no tar files of images, such as n01440764.tar")
    return images


def from_validation_tar(path: Path, synsets: Sequence[str]) -> list[Image]:
    """Return the images of a tar file. ``synsets`` are their classes, in the order of the images' names."""
    with tarfile.open(path, "r:") as files:
        members = sorted((each for each in files if each.isfile()), key=lambda each: each.name)
    if len(members) != len(synsets):
        raise Problem(f"{path} contains {len(members)} images, but the development kit names {len(synsets)}")
    return [in_tar(path, member, synset) for member, synset in zip(members, synsets)]


def in_tar(path: Path, member: tarfile.TarInfo, synset: str, begin: int = 0) -> Image:
    return Image(path, begin + member.offset_data, member.size, Path(member.name).name, synset)


def ground_truth(devkit: Path) -> list[str]:
    """Return the synsets of ImageNet's validation images in the order of their names."""
    from scipy.io import loadmat

    with tarfile.open(devkit) as files:
        content = {Path(name).name: files.extractfile(name) for name in files.getnames() if "/data/" in name}
        table, truth = content.get("meta.mat"), content.get("ILSVRC2012_validation_ground_truth.txt")
        if table is None or truth is None:
            raise Problem(f"{devkit} does not contain data/meta.mat and data/ILSVRC2012_validation_ground_truth.txt")
        rows = loadmat(table, squeeze_me=True)["synsets"]
        names = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in rows}
        return [names[int(line)] for line in truth.read().split()]


# Which image goes where


def convert(images: list[Image], to: Path, split: str, count: int, processes: int) -> None:
    in_parallel(write, missing(images, to, split, count), split, processes)


def missing(images: list[Image], to: Path, split: str, count: int) -> list[Shard]:
    """Return those of ``count`` files that do not exist. Raise Problem if the others were made of other images."""
    if not 0 < count <= len(images):
        raise Problem(f"--shards is {count}: use a number from 1 to the number of images, {len(images)}")
    to.mkdir(parents=True, exist_ok=True)
    classes = classes_of(images, to / "train.json")
    found = plan(images, classes, to, split, count)
    describe(images, classes, to / f"{split}.json", count)
    left = [shard for shard in found if not shard.path.exists()]
    print(f"{split}: {len(images)} images, {count - len(left)} of {count} files exist", file=sys.stderr)
    return left


def classes_of(images: list[Image], train: Path) -> list[str]:
    """Return the class names, whose order gives the labels: those of the description of the training files, if any.

    Raise Problem if the images have a class that it lacks.
    """
    own = sorted({image.synset for image in images})
    if not train.exists():
        return own
    known: list[str] = json.loads(train.read_text(encoding="utf-8"))["classes"]
    if unknown := sorted({*own} - {*known}):
        raise Problem(f"{train} does not have the class {unknown[0]}: use another directory for --to")
    return known


def plan(images: list[Image], classes: list[str], to: Path, split: str, count: int) -> list[Shard]:
    """Return the files with their images, which are shuffled, always in the same way."""
    labels = {synset: label for label, synset in enumerate(classes, 1)}
    order = sorted(images, key=lambda image: (image.synset, image.name))
    random.Random(0).shuffle(order)
    parts = (order[number::count] for number in range(count))
    return [
        Shard(to / f"{split}-{number:05}-of-{count:05}", part, [labels[image.synset] for image in part])
        for number, part in enumerate(parts)
    ]


def describe(images: list[Image], classes: list[str], path: Path, count: int) -> None:
    """Write the description that train.py reads. Raise Problem if there is one of other images or another count."""
    digest = hashlib.sha256(repr(sorted(image[2:] for image in images)).encode()).hexdigest()
    text = json.dumps({"images": len(images), "files": count, "digest": digest, "classes": classes}, indent=1)
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    elif path.read_text(encoding="utf-8") != text:
        raise Problem(f"{path} describes other images or another number of files: use another directory for --to")


def in_parallel(work: Callable[[Shard], None], shards: list[Shard], label: str, processes: int) -> None:
    """Call ``work`` for each file in several processes. After an error or Ctrl-C, the files begun are completed."""
    # TensorFlow does not survive a fork.
    spawn = multiprocessing.get_context("spawn")
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(processes, spawn, initializer=signal.signal, initargs=ignore) as pool:
        running = [pool.submit(work, shard) for shard in shards]
        try:
            for done in progress(label, as_completed(running), len(running)):
                done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def progress(label: str, items: Iterable[Item], count: int) -> Iterator[Item]:
    """Yield the items. Show on stderr how many of ``count`` are done: a bar on a terminal, else a line per tenth."""
    began, shown, terminal = time.monotonic(), 0, sys.stderr.isatty()
    for number, item in enumerate(items, 1):
        yield item
        part = min(1.0, number / count)
        if terminal or int(part * 10) > shown or number == count:
            shown = int(part * 10)
            left = (time.monotonic() - began) * (1 - part) / part
            bar = f"[{'#' * round(part * 30):30}] " if terminal else ""
            end = "\n" if number == count or not terminal else "\r"
            print(f"{label} {bar}{number}/{count}, {left:.0f} s left ", end=end, file=sys.stderr, flush=True)


# What needs TensorFlow


def write(shard: Shard) -> None:
    """Write a file, read it back, and give it its name. Raise Problem if that fails, as on a full disk."""
    import tensorflow as tf

    part = shard.path.with_name(shard.path.name + ".part")
    try:
        with tf.io.TFRecordWriter(str(part)) as file:
            for image, label in zip(shard.images, shard.labels):
                file.write(example(image, label))
        found = labels_in(part)
    except tf.errors.OpError as error:
        raise Problem(f"{part}: {error.message}") from None
    if found != shard.labels:
        raise Problem(f"{part} was not written correctly: {len(found)} of {len(shard.labels)} images are readable")
    part.replace(shard.path)


def labels_in(path: Path) -> list[int]:
    """Return the labels of a file whose images are JPEG. TensorFlow compares the checksums of each record."""
    import tensorflow as tf

    labels = []
    for record in tf.data.TFRecordDataset(str(path)):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        tf.io.extract_jpeg_shape(features["image/encoded"].bytes_list.value[0])
        labels += features["image/class/label"].int64_list.value
    return labels


def example(image: Image, label: int) -> bytes:
    """Return the serialized tf.train.Example of an image, which becomes a JPEG in RGB if it is not one already."""
    import tensorflow as tf

    encoded = image.read()
    try:
        # A truncated image has a valid header, so decode all of it.
        pixels = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        # ImageNet has a PNG file and 22 files in CMYK, all named .JPEG.
        if not (encoded.startswith(b"\xff\xd8") and int(tf.io.extract_jpeg_shape(encoded)[2]) == 3):
            encoded = tf.io.encode_jpeg(pixels, quality=100).numpy()
        height, width, channels = tf.io.extract_jpeg_shape(encoded).numpy().tolist()
    except tf.errors.InvalidArgumentError:
        raise Problem(f"{image.path}: {image.name} cannot be decoded as JPEG or PNG") from None
    texts = {
        "image/encoded": encoded,
        "image/class/synset": image.synset.encode(),
        "image/filename": image.name.encode(),
        "image/format": b"JPEG",
        "image/colorspace": b"RGB",
    }
    numbers = {"image/class/label": label, "image/height": height, "image/width": width, "image/channels": channels}
    features = {key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for key, text in texts.items()}
    for key, number in numbers.items():
        features[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def generate(directory: Path, classes: int, count: int) -> None:
    """Write a directory with a subdirectory of ``count`` images for each class, and one with a quarter as many."""
    for split, images in (("train", count), ("validation", max(1, count // 4))):
        for label in range(classes):
            folder = directory / split / f"n{label:08}"
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(images):
                (folder / f"n{label:08}_{number}.JPEG").write_bytes(stripes(label))


def stripes(label: int) -> bytes:
    """Return a JPEG file of 96x96 to 128x128 pixels. Each class has its own colour and direction of stripes."""
    import tensorflow as tf

    height, width = random.randint(96, 128), random.randint(96, 128)
    rows, columns = tf.meshgrid(tf.range(height), tf.range(width), indexing="ij")
    lines = (rows if label % 2 else columns) // 8 % 2
    colour = tf.random.stateless_uniform([3], seed=[label, 0])
    pixels = 0.4 * colour + 0.3 * tf.cast(lines, tf.float32)[..., None] + tf.random.uniform((height, width, 3), 0, 0.3)
    return tf.io.encode_jpeg(tf.image.convert_image_dtype(pixels, tf.uint8), quality=90).numpy()


if __name__ == "__main__":
    main()
