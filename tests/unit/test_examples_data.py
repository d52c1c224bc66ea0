"""The programs of the ResNet examples that fetch, make and convert data; what needs TensorFlow is tested in lab/."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import json
import os
import sys
import tarfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORD = 3073


def program(folder: str, name: str) -> ModuleType:
    """Import a program of an example. Its own processes find it on sys.path too."""
    sys.path.append(str(EXAMPLES / folder))
    return importlib.import_module(name)


cifar = program("resnet-cifar", "data")
records = program("resnet-imagenet", "make_tfrecords")


@pytest.fixture(autouse=True)
def visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs are visible to each program; what it sets is gone after the test."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")


def tar(path: Path, files: dict[str, bytes], mode: Literal["w", "w:gz"] = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


# CIFAR-10


def test_generated_cifar_files_have_records_of_a_label_and_3072_pixels(tmp_path: Path) -> None:
    cifar.main(["generate", str(tmp_path), "--images", "20"])
    folder = tmp_path / "cifar-10-batches-bin"
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    contents = [(folder / name).read_bytes() for name in names]
    for content in contents:
        assert len(content) == 20 * RECORD
        assert list(content[::RECORD]) == [*range(10), *range(10)]
    assert len(set(contents)) == 6, "each file has its own noise"
    assert len((folder / "batches.meta.txt").read_text().split()) == 10


def test_generated_images_of_a_class_resemble_each_other(tmp_path: Path) -> None:
    cifar.generate(tmp_path, 20)
    content = (tmp_path / "cifar-10-batches-bin/test_batch.bin").read_bytes()
    first, other, same = (content[begin * RECORD + 1 : (begin + 1) * RECORD] for begin in (0, 1, 10))

    def distance(one: bytes, two: bytes) -> int:
        return sum(abs(a - b) for a, b in zip(one, two, strict=True))

    assert distance(first, same) < 0.8 * distance(first, other)


def test_cifar_archive_is_fetched_and_unpacked_by_its_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = tar(tmp_path / "a.tar.gz", {"cifar-10-batches-bin/test_batch.bin": b"0" * 5000}, "w:gz")
    (tmp_path / "to/cifar-10-batches-bin").mkdir(parents=True)
    (tmp_path / "to/cifar-10-batches-bin/old").touch()
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    cifar.main(["fetch", str(tmp_path / "to"), "--source", archive.as_uri(), "--sha256", digest])
    files = [str(path.relative_to(tmp_path / "to")) for path in (tmp_path / "to").rglob("*") if path.is_file()]
    assert files == ["cifar-10-batches-bin/test_batch.bin"]
    said = capsys.readouterr()
    assert said.out == f"{tmp_path}/to/cifar-10-batches-bin\n"
    assert said.err.endswith("100 %\n")


def test_nothing_of_a_cifar_archive_is_written_elsewhere(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", {"../test_batch.bin": b"0", "cifar-10-batches-bin/../../x.bin": b"0"}, "w")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    with pytest.raises(SystemExit, match="the archive has no files in cifar-10-batches-bin"):
        cifar.main(["fetch", str(tmp_path / "to"), "--source", archive.as_uri(), "--sha256", digest])
    assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.parametrize("case", ["another hash", "no file"])
def test_an_archive_that_is_not_what_its_hash_says_changes_nothing(tmp_path: Path, case: str) -> None:
    archive = tmp_path / "a.tar.gz"
    if case == "another hash":
        tar(archive, {"cifar-10-batches-bin/test_batch.bin": b"0"}, "w:gz")
    with pytest.raises(SystemExit, match=r"has the SHA-256 hash .*, not c4a38c|No such file"):
        cifar.main(["fetch", str(tmp_path / "to"), "--source", archive.as_uri()])
    assert list((tmp_path / "to").iterdir()) == []


# TFRecord files


def folder_of_images(path: Path, **classes: int) -> Path:
    for name, count in classes.items():
        (path / name).mkdir(parents=True)
        for number in range(count):
            (path / name / f"{name}_{number}.JPEG").write_bytes(f"{name} {number}".encode())
        (path / name / "notes.txt").touch()
    return path


def test_images_of_a_folder_belong_to_the_class_of_their_subdirectory(tmp_path: Path) -> None:
    images = records.from_folder(folder_of_images(tmp_path, cats=2, dogs=1))
    assert [(image.name, image.synset, image.read()) for image in images] == [
        ("cats_0.JPEG", "cats", b"cats 0"), ("cats_1.JPEG", "cats", b"cats 1"), ("dogs_0.JPEG", "dogs", b"dogs 0"),
    ]  # fmt: skip


def test_images_are_read_out_of_imagenets_nested_tar_files_without_unpacking(tmp_path: Path) -> None:
    inner = {
        synset: tar(tmp_path / synset, {f"{synset}_{n}.JPEG": f"{synset} {n}".encode() * 300 for n in range(2)})
        for synset in ("n01", "n02")
    }
    path = tar(tmp_path / "train.tar", {f"{name}.tar": file.read_bytes() for name, file in inner.items()})
    found = [(image.path, image.name, image.synset, image.read()) for image in records.from_train_tar(path)]
    assert found == [
        (path, f"{synset}_{n}.JPEG", synset, f"{synset} {n}".encode() * 300) for synset in inner for n in range(2)
    ]


def test_validation_images_get_their_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    path = tar(tmp_path / "val.tar", {f"val_{number}.JPEG": str(number).encode() for number in (2, 3, 1)})
    found = records.from_validation_tar(path, ["n09", "n07", "n08"])
    assert [(image.synset, image.read()) for image in found] == [("n09", b"1"), ("n07", b"2"), ("n08", b"3")]
    with pytest.raises(records.Problem, match="contains 3 images, but the development kit names 2"):
        records.from_validation_tar(path, ["n09", "n07"])


@pytest.mark.parametrize("make", [records.from_folder, records.from_train_tar])
def test_a_source_without_images_is_an_error(tmp_path: Path, make: Any) -> None:
    source = tmp_path if make is records.from_folder else tar(tmp_path / "a.tar", {"x.JPEG": b""})
    with pytest.raises(records.Problem, match=r"subdirectory with files|contains no tar files"):
        make(source)


def test_every_image_is_in_one_file_with_the_label_of_its_class(tmp_path: Path) -> None:
    """The order does not depend on that in which the source lists its images."""
    images = records.from_folder(folder_of_images(tmp_path / "in", cats=7, dogs=5, owls=3))
    shards = records.plan(images, ["cats", "dogs", "owls"], tmp_path, "train", 4)
    assert [shard.path.name for shard in shards] == [f"train-{number:05}-of-00004" for number in range(4)]
    assert sorted(len(shard.images) for shard in shards) == [3, 4, 4, 4]
    placed = [pair for shard in shards for pair in zip(shard.images, shard.labels, strict=True)]
    assert sorted(image for image, _ in placed) == sorted(images)
    assert {(image.synset, label) for image, label in placed} == {("cats", 1), ("dogs", 2), ("owls", 3)}
    assert len({image.synset for image in shards[0].images}) > 1, "the classes are mixed"
    assert records.plan(images[::-1], ["cats", "dogs", "owls"], tmp_path, "train", 4) == shards


def test_images_for_validation_get_the_labels_of_those_for_training(tmp_path: Path) -> None:
    """Here there is no cat among them."""
    records.missing(records.from_folder(folder_of_images(tmp_path / "train", cats=2, dogs=1)), tmp_path, "train", 1)
    dogs = records.from_folder(folder_of_images(tmp_path / "validation", dogs=1))
    assert [shard.labels for shard in records.missing(dogs, tmp_path, "validation", 1)] == [[2]]
    owls = records.from_folder(folder_of_images(tmp_path / "others", owls=1))
    with pytest.raises(records.Problem, match=r"train\.json does not have the class owls"):
        records.missing(owls, tmp_path, "others", 1)


def test_conversion_continues_with_the_files_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = records.from_folder(folder_of_images(tmp_path / "in", cats=4, dogs=4))
    to = tmp_path / "out"
    first, second, third = records.missing(images, to, "train", 3)
    for done in (first, third):
        done.path.touch()
    assert records.missing(images, to, "train", 3) == [second]
    assert "train: 8 images, 2 of 3 files exist" in capsys.readouterr().err
    description = json.loads((to / "train.json").read_text())
    assert (description["images"], description["classes"]) == (8, ["cats", "dogs"])
    for other, count in ((images[1:], 3), (images, 4)):
        with pytest.raises(records.Problem, match="describes other images or another number of files"):
            records.missing(other, to, "train", count)


class LosingWriter:
    """tf.io.TFRecordWriter on a disk that loses what is written."""

    def __init__(self, path: str) -> None:
        Path(path).touch()

    def __enter__(self) -> LosingWriter:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_file_that_cannot_be_read_back_does_not_get_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries of TensorFlow find no record in it."""
    tensorflow = SimpleNamespace(
        io=SimpleNamespace(TFRecordWriter=LosingWriter),
        data=SimpleNamespace(TFRecordDataset=lambda path: Path(path).read_bytes().splitlines()),
        errors=SimpleNamespace(OpError=type("OpError", (Exception,), {})),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    shard = records.Shard(tmp_path / "train-00000-of-00001", [], [1, 2])
    with pytest.raises(records.Problem, match="was not written correctly: 0 of 2 images are readable"):
        records.write(shard)
    assert [path.name for path in tmp_path.iterdir()] == ["train-00000-of-00001.part"]


WORK = """
def touch(shard):
    shard.path.touch()

def fail(shard):
    raise ValueError(shard.path.name)
"""


def test_files_are_written_in_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    work = importlib.import_module("some_work")
    images = records.from_folder(folder_of_images(tmp_path / "in", cats=5))
    shards = records.plan(images, ["cats"], tmp_path, "train", 5)
    records.in_parallel(work.touch, shards, "train", 2)
    assert all(shard.path.exists() for shard in shards)
    with pytest.raises(ValueError, match="train-0000"):
        records.in_parallel(work.fail, shards, "train", 1)


@pytest.mark.parametrize("count", ["0", "9"])
def test_a_number_of_files_that_cannot_be_filled_is_an_error(tmp_path: Path, count: str) -> None:
    source = folder_of_images(tmp_path / "in", cats=8)
    with pytest.raises(SystemExit, match="use a number from 1 to the number of images, 8"):
        records.main(["folder", str(source), "--to", str(tmp_path / "out"), "--shards", count])


def test_conversion_opens_no_gpu(tmp_path: Path) -> None:
    """Its processes inherit the variable from the first one."""
    source = folder_of_images(tmp_path / "in", cats=1)
    with pytest.raises(SystemExit, match="--shards is 0"):
        records.main(["folder", str(source), "--to", str(tmp_path / "out"), "--shards", "0"])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"


def test_progress_is_a_line_for_each_tenth_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(records.progress("train", range(40), 40)) == list(range(40))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"train {number}/40" for number in range(4, 41, 4)]


def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import train.py of the ImageNet example with a fake TensorFlow, which finds and opens local files."""
    gfile = SimpleNamespace(
        glob=lambda patterns: [str(path) for each in patterns for path in Path("/").glob(each[1:])],
        exists=os.path.exists,
        GFile=open,
    )
    callbacks = SimpleNamespace(Callback=object)
    tensorflow = SimpleNamespace(io=SimpleNamespace(gfile=gfile), keras=SimpleNamespace(callbacks=callbacks))
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    spec = importlib.util.spec_from_file_location("imagenet_train", EXAMPLES / "resnet-imagenet/train.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_training_refuses_the_files_of_an_interrupted_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = training(monkeypatch).Split.read
    images = records.from_folder(folder_of_images(tmp_path / "in", cats=4, dogs=4))
    first, *others = records.missing(images, tmp_path / "out", "train", 3)
    first.path.touch()
    first.path.with_name(f"{others[0].path.name}.part").touch()
    with pytest.raises(SystemExit, match=r"train\.json describes 3 files, but there are 1: repeat the command"):
        read(str(tmp_path / "out"), "train")
    for shard in others:
        shard.path.touch()
    assert read(str(tmp_path / "out"), "train")[1:] == (8, 2)
