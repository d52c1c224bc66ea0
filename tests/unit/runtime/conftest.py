"""tfctl_runtime as in a process of its own, with a fake TensorFlow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfctl_runtime import _ranks, _strategy, _task, _timings

FAKES = Path(__file__).parent / "fakes"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a job, and nothing made yet."""
    for name in list(os.environ):
        if name == "TF_CONFIG" or name.startswith("TFCTL_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(_ranks, "_made", [])
    monkeypatch.setattr(_strategy, "_made", [])
    monkeypatch.setattr(_task, "_scratch", (0, ""))
    monkeypatch.setattr(_timings, "sources", [])


@pytest.fixture
def tf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The fake TensorFlow, imported anew; what it knows is gone afterwards."""
    monkeypatch.syspath_prepend(str(FAKES))
    import tensorflow

    yield tensorflow
    del sys.modules["tensorflow"]


@pytest.fixture
def hvd(tf: Any) -> Iterator[Any]:
    """The fake Horovod, imported anew, beside the fake TensorFlow."""
    import horovod.tensorflow

    assert tf is sys.modules["tensorflow"]
    yield horovod.tensorflow
    for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        del sys.modules[name]


@pytest.fixture
def tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is installed."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/tensorboard.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
