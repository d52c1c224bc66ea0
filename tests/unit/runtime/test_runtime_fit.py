"""What `fit` is given: a dataset shared out, and callbacks of which one task's write. And the page that shows it."""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tfctl_runtime as runtime
from tests.unit.runtime.a_job import PS, job, tf_config

PAGE = Path(__file__).parents[3] / "docs/runtime.md"


@pytest.mark.parametrize(
    ("strategy", "config", "shared"),
    [
        ("", "", False),
        ("mirrored", "", False),
        ("parameter_server", tf_config("chief", **PS), False),
        ("multi_worker_mirrored", tf_config("evaluator", evaluator=1), False),
        ("multi_worker_mirrored", tf_config("worker", 1, worker=2), True),
        ("", tf_config("chief", 0, chief=1, worker=1), True),
    ],
)
def test_shard_divides_the_dataset_among_workers(
    monkeypatch: pytest.MonkeyPatch, tf: Any, strategy: str, config: str, shared: bool
) -> None:
    job(monkeypatch, strategy, config)
    dataset = tf.data.Dataset(count=100)
    found = runtime.shard(dataset, policy="data")
    assert (found.policy == "DATA", found is dataset) == (shared, not shared)
    with pytest.raises(ValueError, match="policy is one of auto, file, data, off, not 'files'"):
        runtime.shard(dataset, policy="files")


def said_by_shard(dataset: Any, policy: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runtime.shard(dataset, policy=policy)
    assert all(each.filename == __file__ for each in caught), "it names the line of the script"
    return [str(each.message) for each in caught]


def test_shard_warns_once_about_fewer_files_than_workers(monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    two, three, memory = tf.text(2), tf.text(3), tf.data.Dataset(count=2, spec=SimpleNamespace())
    lines = tf.text(-2)
    lines._filenames = tf.text(1)
    renamed = SimpleNamespace(with_options=lambda options: options)  # of a TensorFlow that has other private names
    job(monkeypatch, "multi_worker_mirrored", tf_config("chief", 0, chief=1, worker=2))
    for policy in ("file", "auto"):
        [said] = said_by_shard(tf.data.Dataset(tf.data.Dataset(two), three), policy)
        assert said.startswith("shard(): 2 files for 3 workers, but each needs its own")
        assert 'shard(dataset, policy="data")' in said
        assert said_by_shard(lines, policy)
        for enough in (three, memory, tf.text(-1), tf.data.Dataset(memory, three), renamed):
            assert said_by_shard(enough, policy) == []
    for policy in ("data", "off"):
        assert said_by_shard(two, policy) == []
    monkeypatch.setenv("TF_CONFIG", tf_config("worker", 0, chief=1, worker=2))
    assert said_by_shard(two, "file") == [], "the chief has said it for the job"


def kinds(found: list[Any]) -> list[str]:
    return [type(each).__name__ for each in found]


THREE = ["BackupAndRestore", "ModelCheckpoint", "TensorBoard"]
TIMINGS = "StepTimings"


@pytest.mark.parametrize(
    ("strategy", "config"),
    [
        ("", ""),
        ("mirrored", ""),
        ("parameter_server", tf_config("chief", **PS)),
        ("multi_worker_mirrored", tf_config("worker", 0, worker=2)),
    ],
)
@pytest.mark.usefixtures("tf", "tensorboard")
def test_the_chiefs_callbacks_write_below_the_output(
    monkeypatch: pytest.MonkeyPatch, strategy: str, config: str
) -> None:
    job(monkeypatch, strategy, config, TFCTL_OUTPUT="gs://bucket/run")
    found = runtime.callbacks()
    assert kinds(found) == [*THREE, "EpochTimings" if strategy == "parameter_server" else TIMINGS]
    assert found[0].backup_dir == "gs://bucket/run/backup"
    assert (found[1].filepath, found[1].save_weights_only) == ("gs://bucket/run/checkpoints/ckpt-{epoch:04d}", True)
    assert found[2].log_dir == "gs://bucket/run/logs"
    assert runtime.callbacks("/there")[0].backup_dir == "/there/backup"
    monkeypatch.delenv("TFCTL_OUTPUT", raising=False)
    assert runtime.callbacks()[2].log_dir == "output/logs"


@pytest.mark.usefixtures("tf", "tensorboard")
def test_other_workers_save_to_a_scratch_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes part in the backup, whose writing Keras 2 arranges, and in reading variables for checkpoints."""
    job(monkeypatch, "multi_worker_mirrored", tf_config("worker", 1, worker=2))
    found = runtime.callbacks("/out")
    assert kinds(found) == [*THREE[:2], TIMINGS]
    assert found[0].backup_dir == "/out/backup"
    assert found[1].filepath == f"{runtime.scratch_dir()}/checkpoints/ckpt"


@pytest.mark.usefixtures("tf", "tensorboard")
@pytest.mark.parametrize(
    ("strategy", "config", "every"),
    [
        ("", "", 50),
        ("multi_worker_mirrored", tf_config("worker", 1, worker=2), 50),
        ("parameter_server", tf_config("chief", **PS), "epoch"),
    ],
)
def test_backup_steps_sets_how_often_backups_are_made(
    monkeypatch: pytest.MonkeyPatch, strategy: str, config: str, every: int | str
) -> None:
    """Under parameter_server Keras would make none."""
    job(monkeypatch, strategy, config)
    assert runtime.callbacks("/out", backup_steps=50)[0].save_freq == every
    assert runtime.callbacks("/out")[0].save_freq == "epoch"


@pytest.mark.usefixtures("tf", "tensorboard")
def test_callbacks_belong_to_the_keras_of_the_script(monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    own = {name: type(name, (getattr(tf.keras.callbacks, name),), {}) for name in ("Callback", *THREE)}
    legacy = SimpleNamespace(__version__="2.21.0", callbacks=SimpleNamespace(**own))
    monkeypatch.setitem(sys.modules, "tf_keras", legacy)
    *files, timings = runtime.callbacks("/out")
    assert [type(each) for each in files] == list(own.values())[1:]
    assert isinstance(timings, own["Callback"])


@pytest.mark.usefixtures("tensorboard")
def test_keras_3_weights_files_have_its_suffix(monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    monkeypatch.setattr(tf.keras, "__version__", "3.15.1", raising=False)
    assert runtime.callbacks("/out")[1].filepath == "/out/checkpoints/ckpt-{epoch:04d}.weights.h5"


@pytest.mark.usefixtures("tf")
def test_without_tensorboard_there_are_no_summaries_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site" not in path])
    with pytest.warns(UserWarning, match="the package tensorboard is not installed"):
        assert kinds(runtime.callbacks("/out")) == [*THREE[:2], TIMINGS]


def test_the_documented_example_changes_at_most_five_lines() -> None:
    text = PAGE.read_text()
    before, after = re.findall(r"```python\n(# (?:before|after).*?)```", text, re.DOTALL)
    for code in (before, after):
        compile(code, "docs/runtime.md", "exec")
    old, new = ([line for line in code.splitlines()[1:] if line] for code in (before, after))
    changed = [line for line in difflib.ndiff(old, new) if line.startswith("+ ")]
    assert 0 < len(changed) <= 5, changed
    assert all(f"`{name}(" in text for name in runtime.__all__)


@pytest.mark.usefixtures("tf")
def test_callbacks_need_a_place_in_a_job_without_output(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "mirrored", "")
    monkeypatch.setenv("TFCTL_JOB", "digits")
    monkeypatch.delenv("TFCTL_OUTPUT", raising=False)
    with pytest.raises(
        ValueError, match=r'the job file has `output: none`: pass the place, as in callbacks\(output="gs'
    ):
        runtime.callbacks()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about TensorBoard
        assert runtime.callbacks(output="gs://bucket/run")
