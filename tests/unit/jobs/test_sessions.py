"""The sessions of a start: what no host should say."""

from __future__ import annotations

from typing import Any

import pytest

from tfctl.errors import Undone
from tfctl.jobs.sessions import Sessions
from tfctl.remote.fleet import Fleet


class Odd:
    """A session with a host that says what it should not."""

    ended = False

    def send(self, message: object) -> None:
        pass

    def close_stdin(self) -> None:
        pass

    def expect(self, kind: object, timeout: float) -> Any:
        raise KeyError(kind, timeout)

    def receive(self, timeout: float) -> Any:
        raise KeyError(timeout)


def test_go_reports_a_defect_when_a_session_raises_an_unexpected_error() -> None:
    sessions = Sessions(Fleet([]), {"node1": Odd()}, {}, "nothing was begun")  # type: ignore[dict-item]
    with pytest.raises(Undone, match="node1: this is a defect in tfctl: KeyError"):
        sessions.go()
