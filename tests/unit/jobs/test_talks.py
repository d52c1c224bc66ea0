"""The conversations of a start: what no host should say."""

from __future__ import annotations

from typing import Any

import pytest

from tfctl.errors import Undone
from tfctl.jobs.talks import Talks
from tfctl.remote.fleet import Fleet


class Odd:
    """A conversation with a host that says what it should not."""

    ended = False

    def send(self, kind: str, value: Any) -> None:
        pass

    def close_stdin(self) -> None:
        pass

    def receive(self, timeout: float) -> tuple[str, Any]:
        raise KeyError(timeout)


def test_what_nobody_foresaw_is_no_success() -> None:
    talks = Talks(Fleet([]), {"node1": Odd()}, {}, "nothing was begun")  # type: ignore[dict-item]
    with pytest.raises(Undone, match="node1: this is a defect in tfctl: KeyError"):
        talks.go()
