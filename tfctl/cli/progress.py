"""Show a playbook's progress on stderr: a live line on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from tfctl.cli.common import say
from tfctl.provision.events import Began, HostDone, TaskStarted, Warned
from tfctl.wording import abbreviated, plain, shown

if TYPE_CHECKING:
    from tfctl.provision.events import Event

_SIGNS = {"changed": "changed", "failed": "FAILED", "unreachable": "UNREACHABLE"}
_COLOURS = {"changed": "yellow", "failed": "bold red", "unreachable": "bold red"}


class _Shown(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object: ...
    def task(self, name: str, hosts: int) -> None: ...
    def host_done(self) -> None: ...
    def line(self, text: str, style: str, clock: bool) -> None: ...


class ProgressDisplay:
    """Shows the events of a run. Each change or failure on a host stays as a line."""

    def __init__(self) -> None:
        self._shown: _Shown = _Terminal() if sys.stderr.isatty() else _Pipe()
        self._hosts = 0

    def __enter__(self) -> Self:
        self._shown.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.__exit__(kind, error, trace)

    def take(self, event: Event) -> None:
        if isinstance(event, Began):
            self._begin(event)
        elif isinstance(event, TaskStarted):
            self._shown.task(plain(event.name), self._hosts)
        elif isinstance(event, Warned):
            self._shown.line(shown(f"{event.host}: " + event.text), "yellow", True)
        else:
            self._host_done(event)

    def _begin(self, event: Began) -> None:
        self._hosts = len(event.hosts)
        if event.batch:
            self._shown.line(plain(f"{event.batch}: {abbreviated(event.hosts)}"), "bold", True)

    def _host_done(self, event: HostDone) -> None:
        self._shown.host_done()
        if event.state in ("failed", "unreachable"):
            self._hosts -= 1
        if event.state in _SIGNS:
            what = f"  {event.host}  {_SIGNS[event.state]}  {event.task}"
            self._shown.line(plain(what), _COLOURS[event.state], True)
        for line in event.diff.splitlines():
            self._shown.line(plain(f"    │ {line}"), "", False)


class _Pipe:
    """Prints every line with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def task(self, name: str, _hosts: int) -> None:
        self.line(name)

    def host_done(self) -> None:
        pass

    def line(self, text: str, _style: str = "", clock: bool = True) -> None:
        when = f"{time.monotonic() - self._began:6.1f} s  " if clock else ""
        say(f"{when}{text}")


class _Terminal:
    """Shows at the bottom the running task, how many hosts have finished it, and the elapsed time."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False)
        # Not markup: a task may be called [x].
        columns = (TextColumn(f"{{{field}}}", markup=False) for field in ("task.description", "task.fields[hosts]"))
        self._live = Progress(
            SpinnerColumn(),
            *columns,
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._row = self._live.add_task("connecting", total=None, hosts="")
        self._done = self._total = 0

    def __enter__(self) -> None:
        self._live.__enter__()

    def __exit__(self, *what: object) -> None:
        self._live.__exit__(*what)  # type: ignore[arg-type]

    def task(self, name: str, hosts: int) -> None:
        self._done, self._total = 0, hosts
        self._live.update(self._row, description=name, hosts=f"0/{hosts} hosts")

    def host_done(self) -> None:
        self._done += 1
        self._live.update(self._row, hosts=f"{self._done}/{self._total} hosts")

    def line(self, text: str, style: str, _clock: bool) -> None:
        self._console.print(text, style=style, markup=False)
