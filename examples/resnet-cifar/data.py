"""CIFAR-10 in its binary form: download it, or generate small files of the same format.

    python data.py fetch DIRECTORY       170 MB, checked by its hash
    python data.py generate DIRECTORY    made-up images that a network can learn to tell apart

Both write DIRECTORY/cifar-10-batches-bin. The program needs only Python's standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
FOLDER = "cifar-10-batches-bin"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS = 3 * 32 * 32  # bytes of an image: all red pixels, then all green ones, then all blue ones


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="CIFAR-10 in its binary form")
    commands = parser.add_subparsers(dest="command", required=True)
    fetching = commands.add_parser("fetch", help="download the data set")
    fetching.add_argument("directory", type=Path)
    fetching.add_argument("--source", default=SOURCE, help="the URL of the archive")
    fetching.add_argument("--sha256", default=SHA256)
    generating = commands.add_parser("generate", help="generate small files of the same format")
    generating.add_argument("directory", type=Path)
    generating.add_argument("--images", type=int, default=200, help="images in each of the six files")
    args = parser.parse_args(words)
    try:
        if args.command == "fetch":
            fetch(args.source, args.sha256, args.directory)
        else:
            generate(args.directory, args.images)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise SystemExit(f"data.py {args.command}: {error}") from None
    print(args.directory / FOLDER)


def fetch(source: str, sha256: str, directory: Path) -> None:
    """Download and unpack the archive. Raise ValueError if its hash differs; nothing is unpacked then."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        archive = Path(scratch, "archive")
        with urllib.request.urlopen(source, timeout=60) as response, archive.open("wb") as file:
            found = copy(response, file, int(response.headers.get("Content-Length") or 0))
        if found != sha256:
            raise ValueError(f"{source} has the SHA-256 hash {found}, not {sha256}: use another mirror with --source")
        unpack(archive, Path(scratch, FOLDER))
        shutil.rmtree(directory / FOLDER, ignore_errors=True)
        Path(scratch, FOLDER).rename(directory / FOLDER)


def unpack(archive: Path, folder: Path) -> None:
    """Write the archive's files to the folder. Raise ValueError if it has none."""
    folder.mkdir()
    with tarfile.open(archive) as members:
        for member in members:
            source = members.extractfile(member) if member.isreg() else None
            if source and Path(member.name).parent == Path(FOLDER):
                with (folder / Path(member.name).name).open("wb") as target:
                    shutil.copyfileobj(source, target)
    if not any(folder.iterdir()):
        raise ValueError(f"the archive has no files in {FOLDER}")


def copy(source: BinaryIO, target: BinaryIO, size: int) -> str:
    """Copy ``size`` bytes (0: unknown), with progress on stderr. Return their SHA-256 hash in hexadecimal digits."""
    digest, done, shown = hashlib.sha256(), 0, 0
    while block := source.read(1 << 20):
        digest.update(block)
        target.write(block)
        done += len(block)
        if size and (percent := 100 * done // size) >= shown + (1 if sys.stderr.isatty() else 10):
            shown = percent
            line = f"{done >> 20} of {size >> 20} MB, {percent} %"
            print(line, end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
    return digest.hexdigest()


def generate(directory: Path, count: int) -> None:
    """Write five files of training images and one of test images, with ``count`` images each."""
    folder = directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n\n")
    for seed, name in enumerate([*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]):
        (folder / name).write_bytes(b"".join(records(count, random.Random(seed))))


def records(count: int, source: random.Random) -> Iterator[bytes]:
    """Yield images with their labels: the pattern of the class, half covered by noise."""
    patterns = [random.Random(label).randbytes(PIXELS) for label in range(len(CLASSES))]
    for number in range(count):
        label = number % len(CLASSES)
        noise = source.randbytes(PIXELS)
        yield bytes([label]) + bytes((pattern + more) // 2 for pattern, more in zip(patterns[label], noise))


if __name__ == "__main__":
    main()
