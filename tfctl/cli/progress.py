"""What a run of a playbook shows while it runs, on stderr: a line that moves on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tfctl.remote.report import HostDone, TaskStarted, Warned

if TYPE_CHECKING:
    from tfctl.remote.report import Event

_SIGNS = {"changed": "changed", "failed": "FAILED", "unreachable": "UNREACHABLE"}
_COLOURS = {"changed": "yellow", "failed": "bold red", "unreachable": "bold red"}


class Progress:
    """Takes the events of a run. Each change and failure of a host is a line that stays."""

    def __init__(self) -> None:
        self._live: Any = None
        self._began = time.monotonic()
        if sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)
            self._live = self._console.status("connecting")

    def __enter__(self) -> Progress:
        if self._live:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    def take(self, event: Event) -> None:
        if isinstance(event, TaskStarted):
            if self._live:
                self._live.update(event.name)
            else:
                self._line(event.name)
        elif isinstance(event, Warned):
            self._line(f"{event.host}: {event.text}", "yellow")
        elif isinstance(event, HostDone) and event.state in _SIGNS:
            self._line(f"  {event.host}  {_SIGNS[event.state]}  {event.task}", _COLOURS[event.state])
            for line in event.diff.splitlines():
                self._line(line, clock=False)

    def _line(self, text: str, style: str = "", clock: bool = True) -> None:
        if self._live:
            self._console.print(text, style=style, markup=False)
        else:
            when = f"{time.monotonic() - self._began:6.1f} s  " if clock else ""
            print(f"{when}{text}", file=sys.stderr, flush=True)
