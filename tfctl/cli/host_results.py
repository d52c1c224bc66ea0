"""What `provision`, `preflight`, `reset` and `stacks explain` share: the sudo password, how a run is shown, and the
faults of hosts."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from tfctl.errors import UsageError
from tfctl.wording import lines_of, plain, shown, unmarked

if TYPE_CHECKING:
    from tfctl.provision.events import Event
    from tfctl.provision.results import HostResult, PlayResult

Request = TypeVar("Request")


def ask_become_password() -> str:
    """Ask on the terminal for the password that sudo asks for on the hosts. Raises UsageError without a terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            "-K asks for a password, and stdin is not a terminal",
            "run it in a terminal, or let the login user of the hosts use sudo without a password (NOPASSWD)",
        )
    try:
        password = getpass.getpass("sudo password of the hosts: ")
    except EOFError:
        password = ""
    if not password:
        raise UsageError("no password was entered")
    return password


def run_shown(use_case: Callable[[Request, Callable[[Event], None]], PlayResult], request: Request) -> PlayResult:
    """Run the use case and show its progress on stderr meanwhile."""
    from tfctl.cli.progress import ProgressDisplay

    with ProgressDisplay() as progress:
        return use_case(request, progress.take)


def host_lines(
    result: PlayResult,
    summary: Callable[[HostResult], str],
    more: Callable[[HostResult], Sequence[str]] = lambda _: (),
) -> Iterator[str]:
    """Yield a line for each host, its name and ``summary``, and below it the host's faults with their remedies, and
    the lines of ``more``."""
    width = max(len(host.host) for host in result.hosts)
    for host in result.hosts:
        yield f"{plain(host.host):{width}}  {summary(host)}"
        yield from (f"{'':{width}}  {line}" for line in (*_faults(host), *_lines(more(host))))


def _faults(host: HostResult) -> Iterator[str]:
    for fault in host.faults:
        yield from _lines(lines_of(fault.message))
        if fault.remedy:
            yield from (f"→ {plain(line)}" for line in lines_of(fault.remedy))


def _lines(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from shown(unmarked(sentence)).splitlines()
