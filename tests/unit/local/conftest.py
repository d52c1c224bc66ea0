from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.local.local_run import Local

# Whoever runs the tests in the background of a shell passes on that SIGINT is ignored; tests send it to tfctl.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """Run `tfctl run` in an empty directory; at the end, kill what still runs."""
    made = Local(tmp_path)
    yield made
    made.close()
