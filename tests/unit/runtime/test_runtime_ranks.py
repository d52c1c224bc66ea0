"""The functions of tfctl_runtime in a rank of horovod, and what they return under the other strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfctl_runtime as runtime
from tests.unit.runtime.a_job import PS, job, tf_config


def a_rank(monkeypatch: pytest.MonkeyPatch, hvd: Any, rank: int = 1, size: int = 3) -> None:
    monkeypatch.setattr(hvd, "RANK", rank)
    monkeypatch.setattr(hvd, "SIZE", size)
    job(monkeypatch, "horovod", TFCTL_ROLE="worker", TFCTL_INDEX=str(rank))


def test_a_rank_is_initialized_once_and_gets_the_default_strategy(
    monkeypatch: pytest.MonkeyPatch, tf: Any, hvd: Any
) -> None:
    a_rank(monkeypatch, hvd)
    assert runtime.strategy() is tf.distribute.get_strategy()
    assert (runtime.replicas(), hvd.INITIALIZED) == (3, [True])


@pytest.mark.parametrize(("visible", "own"), [(4, "GPU:2"), (1, "GPU:0")])
def test_each_rank_sees_one_gpu(monkeypatch: pytest.MonkeyPatch, tf: Any, hvd: Any, visible: int, own: str) -> None:
    """With MIG instances, only one is visible."""
    a_rank(monkeypatch, hvd)
    monkeypatch.setattr(hvd, "LOCAL_RANK", 2)
    tf.GPUS[:] = [f"GPU:{number}" for number in range(visible)]
    runtime.strategy()
    assert list(tf.GPUS) == [own]


def test_a_rank_trains_on_its_share_and_averages_its_gradients(
    monkeypatch: pytest.MonkeyPatch, tf: Any, hvd: Any
) -> None:
    a_rank(monkeypatch, hvd)
    context = runtime.dataset(lambda context: context)
    assert (context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync) == (3, 1, 3)
    dataset = tf.data.Dataset(count=100)
    assert [runtime.shard(dataset, policy).share for policy in ("auto", "data")] == [(3, 1)] * 2
    assert runtime.shard(dataset, "off") is dataset
    with pytest.raises(ValueError, match="Horovod has no policy 'file'"):
        runtime.shard(dataset, "file")
    optimizer = object()
    assert runtime.optimizer(optimizer).optimizer is optimizer


@pytest.mark.parametrize(
    ("strategy", "config", "expected", "replicas"),
    [
        ("", "", (1, 1), 1),
        ("mirrored", "", ("distributed", 4), 4),
        ("parameter_server", tf_config("chief", **PS), (1, 1), 1),
    ],
)
@pytest.mark.usefixtures("tf")
def test_other_strategies_make_the_dataset_and_keep_the_optimizer(
    monkeypatch: pytest.MonkeyPatch, strategy: str, config: str, expected: tuple[Any, int], replicas: int
) -> None:
    job(monkeypatch, strategy, config)

    def make(context: Any) -> Any:
        return context.num_replicas_in_sync

    found = runtime.dataset(make)
    assert found == expected if strategy == "mirrored" else found == expected[1]
    assert runtime.replicas() == replicas
    optimizer = object()
    assert runtime.optimizer(optimizer) is optimizer


def backup(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("**/*")) if path.is_file()}


@pytest.mark.usefixtures("tensorboard")
def test_rank_0_sends_its_backup_and_the_others_resume_from_a_copy(
    monkeypatch: pytest.MonkeyPatch, hvd: Any, tmp_path: Path
) -> None:
    """The others may run on hosts that do not see rank 0's directory."""
    sent = {"chief/checkpoint": b"ckpt-7", "chief/ckpt-7.index": b"\0\1"}
    a_rank(monkeypatch, hvd, rank=1)
    monkeypatch.setattr(hvd, "BROADCAST", sent)
    found = runtime.callbacks(str(tmp_path), backup_steps=50)
    own = Path(runtime.scratch_dir())
    kinds = ["BroadcastGlobalVariablesCallback", "MetricAverageCallback", "BackupAndRestore", "StepTimings"]
    assert [type(each).__name__ for each in found] == kinds
    assert (found[2].backup_dir, found[2].save_freq) == (f"{own}/backup", 50)
    assert (backup(own / "backup"), backup(tmp_path / "backup")) == (sent, {})


@pytest.mark.usefixtures("tensorboard")
def test_rank_0_reads_its_own_backup_and_writes_all_files(
    monkeypatch: pytest.MonkeyPatch, hvd: Any, tmp_path: Path
) -> None:
    (tmp_path / "backup/chief").mkdir(parents=True)
    (tmp_path / "backup/chief/checkpoint").write_bytes(b"ckpt-7")
    a_rank(monkeypatch, hvd, rank=0)
    found = runtime.callbacks(str(tmp_path))
    assert hvd.SENT == [{"chief/checkpoint": b"ckpt-7"}]
    kinds = ["BackupAndRestore", "ModelCheckpoint", "TensorBoard", "StepTimings"]
    assert [type(each).__name__ for each in found[2:]] == kinds
    assert found[2].backup_dir == f"{tmp_path}/backup"


@pytest.mark.usefixtures("tensorboard")
def test_rank_0_sends_a_backup_that_is_in_cloud_storage(monkeypatch: pytest.MonkeyPatch, tf: Any, hvd: Any) -> None:
    """Keras writes it there through TensorFlow."""
    saved = {"checkpoint": b"ckpt-7", "chief/ckpt-7.index": b"\0\1"}
    tf.BUCKETS.update({f"gs://bucket/run/backup/{name}": content for name, content in saved.items()})
    tf.BUCKETS["gs://bucket/run/backups"] = b"another file"
    a_rank(monkeypatch, hvd, rank=0)
    found = runtime.callbacks("gs://bucket/run")
    [sent] = hvd.SENT
    assert sent == saved
    assert found[2].backup_dir == "gs://bucket/run/backup"
