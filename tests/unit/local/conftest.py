from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_run import Local


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """`tfctl run --local` in a directory of its own; at the end whatever still runs is killed."""
    made = Local(tmp_path)
    yield made
    made.close()
