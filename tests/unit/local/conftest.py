from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.local.local_run import Local


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """Run `tfctl run --local` in an empty directory; at the end, kill what still runs."""
    made = Local(tmp_path)
    yield made
    made.close()
