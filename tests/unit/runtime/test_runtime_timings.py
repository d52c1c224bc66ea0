"""What a task records about its training: the totals, how often, and what cannot be known."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tfctl_runtime as runtime
from tests.unit.runtime.a_job import PS, job, tf_config
from tfctl.node import names
from tfctl_runtime import _timings

OWN = {"TFCTL_JOB": "digits", "TFCTL_ATTEMPT": "2", "TFCTL_ROLE": "worker", "TFCTL_INDEX": "0"}


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the task worker/0, on a host whose jobs are below ``tmp_path``."""
    monkeypatch.setattr(_timings, "_JOBS", str(tmp_path))
    (tmp_path / "digits/2/worker-0").mkdir(parents=True)
    return tmp_path / "digits/2/worker-0/timings.jsonl"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def fit(callback: Any, epochs: int = 1, steps: int = 3, at_once: int = 1) -> None:
    """Call a callback as `fit` of Keras 2 does, which numbers the last of the steps that it has executed at once.

    With a ParameterServerStrategy, it refuses callbacks that have methods for batches.
    """
    coordinated = os.environ.get("TFCTL_STRATEGY") == "parameter_server"
    if coordinated and callback._implements_train_batch_hooks():
        raise ValueError("Batch-level `Callback`s are not supported with `ParameterServerStrategy`")
    callback.params, callback.model = {"steps": steps, "epochs": epochs}, SimpleNamespace()
    callback.on_train_begin()
    for epoch in range(epochs):
        callback.on_epoch_begin(epoch)
        for first in range(0, steps, at_once):
            callback.on_train_batch_begin(first)
            callback.on_train_batch_end(first + at_once - 1, {})
        callback.on_epoch_end(epoch, {})
    callback.on_train_end()


def test_timings_file_has_the_path_that_the_node_part_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"{_timings._JOBS}/digits/2/worker-0/{_timings._NAME}" == names.timings_file("digits", 2, "worker", 0)
    job(monkeypatch, "mirrored", **OWN)
    assert _timings.path() is None, "this machine has no such task"


def test_timings_total_all_steps_and_keep_the_first_step_apart() -> None:
    clock = Clock()
    written: list[str] = []
    timings = _timings.Timings(32, written.append, clock)
    for at, steps in ((6.0, 1), (6.5, 1), (7.0, 2)):
        clock.now = at
        timings.stepped(steps, wait=0.1)
    timings.end()
    last = json.loads(written[-1])
    assert abs(last.pop("time") - time.time()) < 60
    assert abs(last.pop("began") - time.time()) < 60
    assert last == {
        "steps": 4, "total": None, "epoch": None, "examples": 128, "seconds": 7.0, "first_step": 6.0, "first_steps": 1,
        "input_wait": 0.2, "evaluation": 0.0,
    }  # fmt: skip


def test_one_unknown_wait_makes_the_sum_unknown() -> None:
    written: list[str] = []
    timings = _timings.Timings(None, written.append, Clock())
    for wait in (0.1, 0.1, None, 0.1):
        timings.stepped(1, wait)
    timings.end()
    assert (json.loads(written[-1])["input_wait"], json.loads(written[-1])["examples"]) == (None, None)


def test_the_line_of_a_fit_is_overwritten_once_a_second() -> None:
    clock = Clock()
    written: list[str] = []
    timings = _timings.Timings(32, written.append, clock)
    while clock.now < 60:
        clock.now += 0.25
        timings.stepped(1, 0.0)
    assert [json.loads(line)["seconds"] for line in written] == [0.25 + second for second in range(60)]
    assert len({len(line) for line in written}) == 1


@pytest.mark.usefixtures("tf")
def test_file_has_a_line_for_each_fit_with_what_it_will_have_done(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "mirrored", **OWN)
    for epochs in (2, 5):
        fit(runtime.timings(), epochs=epochs, steps=10)
    assert [(one["steps"], one["total"], one["epoch"]) for one in lines(file)] == [(20, 20, 2), (50, 50, 5)]


def test_a_fit_that_goes_on_with_a_later_epoch_counts_only_the_steps_that_are_left() -> None:
    written: list[str] = []
    timings = _timings.Timings(None, written.append, Clock())
    timings.epochs, timings.epoch_steps = 10, 50
    timings.begins(8)
    timings.stepped(1)
    assert (json.loads(written[-1])["total"], json.loads(written[-1])["epoch"]) == (150, 8)


@pytest.mark.usefixtures("tf")
def test_recording_the_timings_of_fit_does_not_slow_down_its_steps(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "mirrored", **OWN)
    began = time.process_time()
    timings = runtime.timings(batch_size=32)
    assert timings._supports_tf_logs, "Keras 2 would wait for the values of the logs after each step"
    fit(timings, steps=20_000)
    # 0.5 % of a step of 20 ms. It is some microseconds on an idle machine.
    assert (time.process_time() - began) / 20_000 < 100e-6
    [last] = lines(file)[-1:]
    assert (last["steps"], last["examples"], last["first_steps"]) == (20_000, 640_000, 1)


@pytest.mark.usefixtures("tf")
def test_steps_that_are_executed_at_once_are_all_counted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "mirrored", **OWN)
    fit(runtime.timings(), epochs=2, steps=20, at_once=10)
    assert (lines(file)[-1]["steps"], lines(file)[-1]["first_steps"]) == (40, 10)
    keras_3 = runtime.timings()
    keras_3.params, keras_3.model = {}, SimpleNamespace(steps_per_execution=5)
    keras_3.on_train_begin()
    keras_3.on_train_batch_begin(0)
    keras_3.on_train_batch_end(0)  # Keras 3 numbers the first of them
    keras_3.on_train_end()
    assert lines(file)[-1]["steps"] == 5


@pytest.mark.usefixtures("tf")
def test_a_task_counts_its_share_of_a_global_batch(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "multi_worker_mirrored", tf_config("worker", 0, worker=4), **OWN)
    fit(runtime.timings(batch_size=128), steps=10)
    assert (lines(file)[-1]["examples"], lines(file)[-1]["input_wait"]) == (320, None)


@pytest.mark.usefixtures("tf")
def test_under_parameter_server_whole_epochs_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_timings, "_JOBS", str(tmp_path))
    (tmp_path / "digits/2/chief-0").mkdir(parents=True)
    job(monkeypatch, "parameter_server", tf_config("chief", **PS), **{**OWN, "TFCTL_ROLE": "chief"})
    fit(runtime.timings(batch_size=16), epochs=2, steps=5)
    found = lines(tmp_path / "digits/2/chief-0/timings.jsonl")
    assert [(line["steps"], line["total"], line["first_step"]) for line in found] == [(10, 10, None)]
    assert found[-1]["examples"] == 160


def test_steps_wait_for_batches_that_come_late(file: Path, monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    job(monkeypatch, "mirrored", **OWN)
    dataset = runtime.shard(tf.data.Dataset(tf.data.Dataset().batch(32)))
    callback = runtime.timings()
    callback.params, callback.model = {}, SimpleNamespace()
    callback.on_train_begin()
    for step in range(3):
        if step == 2:
            dataset.take()  # ready before its step begins
        callback.on_train_batch_begin(step)
        if step < 2:
            time.sleep(0.02)
            dataset.take()
        callback.on_train_batch_end(step)
    callback.on_train_end()
    last = lines(file)[-1]
    assert (last["steps"], last["examples"]) == (3, 96)
    assert 0.02 <= last["input_wait"] < last["seconds"], "the first step is not counted"


def test_batches_that_do_not_match_the_steps_make_the_wait_unknown(
    file: Path, monkeypatch: pytest.MonkeyPatch, tf: Any
) -> None:
    job(monkeypatch, "mirrored", **OWN)
    runtime.shard(tf.data.Dataset())
    fit(runtime.timings())
    assert lines(file)[-1]["input_wait"] is None


def steps_with(callback: Any, steps: int, *taken: Any) -> None:
    """Call a callback as `fit` does. Each step takes a batch of each of these datasets."""
    callback.params, callback.model = {"steps": steps}, SimpleNamespace()
    callback.on_train_begin()
    for step in range(steps):
        callback.on_train_batch_begin(step)
        for dataset in taken:
            dataset.take()
        callback.on_train_batch_end(step)
    callback.on_epoch_end(0)
    callback.on_train_end()


@pytest.mark.parametrize(
    ("strategy", "config", "batches"),
    [("mirrored", "", 4), ("multi_worker_mirrored", tf_config("worker", 0, worker=3), 2), ("horovod", "", 1)],
)
@pytest.mark.parametrize(
    ("known", "told"), [(16, None), (None, 16)], ids=["batch size of the dataset", "of the script"]
)
def test_examples_and_wait_are_known_with_a_dataset_that_each_worker_makes(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    tf: Any,
    hvd: Any,
    strategy: str,
    config: str,
    batches: int,
    known: int | None,
    told: int | None,
) -> None:
    """Each of the task's replicas takes a batch of 16 in each step."""
    monkeypatch.setattr(hvd, "SIZE", 3)
    monkeypatch.setattr(tf, "GPUS", ["GPU:0", "GPU:1"])
    job(monkeypatch, strategy, config, **OWN)
    made: list[Any] = []

    def make(_context: Any) -> Any:
        made.append(tf.data.Dataset().batch(known))
        return made[-1]

    found = runtime.dataset(make)
    noting = found if strategy == "horovod" else found[1]
    assert noting._input_dataset is made[0]
    steps_with(runtime.timings(batch_size=told), 5, *[noting] * batches)
    last = lines(file)[-1]
    assert (last["steps"], last["examples"]) == (5, 5 * 16 * batches)
    assert 0 <= last["input_wait"] < last["seconds"]


@pytest.mark.parametrize(
    ("strategy", "config", "examples"),
    [("mirrored", "", 1280), ("multi_worker_mirrored", tf_config("worker", 0, worker=4), 320)],
)
def test_batches_of_the_script_are_not_counted_as_those_of_a_dataset_for_validation(
    file: Path, monkeypatch: pytest.MonkeyPatch, tf: Any, strategy: str, config: str, examples: int
) -> None:
    """`fit` gets arrays: its batches are divided among the replicas of the task, those of `dataset` are not."""
    monkeypatch.setattr(tf, "GPUS", ["GPU:0", "GPU:1"])
    job(monkeypatch, strategy, config, **OWN)
    runtime.dataset(lambda _context: tf.data.Dataset().batch(100))
    fit(runtime.timings(batch_size=128), steps=10)
    assert lines(file)[-1]["examples"] == examples


def test_a_dataset_for_validation_does_not_change_the_figures_of_training(
    file: Path, monkeypatch: pytest.MonkeyPatch, tf: Any
) -> None:
    job(monkeypatch, "mirrored", **OWN)
    training = runtime.shard(tf.data.Dataset().batch(32))
    validation = runtime.shard(tf.data.Dataset().batch(100))
    for used, size in ((training, 32), (validation, 100)):
        callback = runtime.timings()
        steps_with(callback, 3, used)
        assert (lines(file)[-1]["examples"], lines(file)[-1]["input_wait"] is None) == (3 * size, False)


@pytest.mark.usefixtures("file")
def test_batches_outside_of_fit_take_no_memory(monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    """A training loop of the script's own, and `evaluate`, take batches too."""
    job(monkeypatch, "mirrored", **OWN)
    dataset = runtime.shard(tf.data.Dataset().batch(32))
    [source] = _timings.sources
    for _ in range(2):
        for _ in range(1000):
            dataset.take()
        assert not source.arrivals
        steps_with(runtime.timings(), 3, dataset)


@pytest.mark.usefixtures("tf")
@pytest.mark.parametrize(("sizes", "examples"), [((64, 64), 160), ((64, 32), None), ((64, None), None)])
def test_examples_are_unknown_if_batches_have_several_sizes_and_their_use_is_unknown(
    file: Path, monkeypatch: pytest.MonkeyPatch, tf: Any, sizes: tuple[int | None, ...], examples: int | None
) -> None:
    job(monkeypatch, "multi_worker_mirrored", tf_config("worker", 0, worker=4), **OWN)
    for size in sizes:
        runtime.shard(tf.data.Dataset().batch(size))
    fit(runtime.timings(), steps=10)
    assert lines(file)[-1]["examples"] == examples


def test_under_parameter_server_the_chief_counts_the_examples_of_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tf: Any
) -> None:
    monkeypatch.setattr(_timings, "_JOBS", str(tmp_path))
    (tmp_path / "digits/2/chief-0").mkdir(parents=True)
    job(monkeypatch, "parameter_server", tf_config("chief", **PS), **{**OWN, "TFCTL_ROLE": "chief"})
    made = tf.data.Dataset().batch(16)
    assert runtime.dataset(lambda _context: made) is made, "it is copied to the workers"
    fit(runtime.timings(), epochs=2, steps=5)
    assert lines(tmp_path / "digits/2/chief-0/timings.jsonl")[-1]["examples"] == 160


@pytest.mark.usefixtures("tf")
def test_the_time_of_validation_is_kept_apart(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "mirrored", **OWN)
    callback = runtime.timings(batch_size=32)
    callback.params, callback.model = {"steps": 1}, SimpleNamespace()
    callback.on_test_begin()  # an evaluation before fit
    callback.on_test_end()
    callback.on_train_begin()
    for epoch in range(2):
        callback.on_train_batch_begin(0)
        time.sleep(0.01)
        callback.on_train_batch_end(0)
        callback.on_test_begin()
        time.sleep(0.02)
        callback.on_test_end()
        callback.on_epoch_end(epoch)
    callback.on_train_end()
    last = lines(file)[-1]
    assert 0.04 <= last["evaluation"] < last["seconds"]


@pytest.mark.usefixtures("tf")
def test_nothing_is_recorded_outside_a_job(file: Path, tf: Any) -> None:
    fit(runtime.timings(batch_size=32))
    dataset = tf.data.Dataset()
    assert runtime.shard(dataset) is dataset
    assert not file.exists()


@pytest.mark.usefixtures("tf")
def test_a_full_disk_does_not_end_the_training(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "mirrored", **OWN)
    file.symlink_to("/dev/full")
    fit(runtime.timings(batch_size=32))
