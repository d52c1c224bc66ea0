"""What `provision`, `preflight` and `reset` share: how a playbook's run is shown, and the faults of its hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.provision.events import Event
    from tfctl.provision.results import HostResult, PlayResult

Request = TypeVar("Request")


def run_shown(use_case: Callable[[Request, Callable[[Event], None]], PlayResult], request: Request) -> PlayResult:
    """Run the use case and show its progress on stderr meanwhile."""
    from tfctl.cli.progress import Progress

    with Progress() as progress:
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
        yield f"{host.host:{width}}  {summary(host)}"
        yield from (f"{'':{width}}  {plain(line)}" for line in (*_faults(host), *more(host)))


def _faults(host: HostResult) -> Iterator[str]:
    for fault in host.faults:
        yield from fault.message.splitlines()
        yield from (f"→ {line}" for line in fault.remedy.splitlines())
