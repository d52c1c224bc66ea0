"""What `provision` and `preflight` share: the sudo password, how a playbook's run is shown, and its hosts' faults."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tfctl.errors import UsageError
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.provision.events import Event
    from tfctl.provision.results import HostResult, PlayResult
    from tfctl.provision.run import ProvisionRequest

UseCase = Callable[["ProvisionRequest", Callable[["Event"], None]], "PlayResult"]


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


def run_shown(use_case: UseCase, request: ProvisionRequest) -> PlayResult:
    """Run the use case and show its progress on stderr meanwhile."""
    from tfctl.cli.progress import Progress

    with Progress() as progress:
        return use_case(request, progress.take)


def host_lines(result: PlayResult, summary: Callable[[HostResult], str]) -> Iterator[str]:
    """Yield a line for each host, its name and ``summary``, and below it the host's faults with their remedies."""
    width = max(len(host.host) for host in result.hosts)
    for host in result.hosts:
        yield f"{host.host:{width}}  {summary(host)}"
        yield from (f"{'':{width}}  {plain(line)}" for line in _faults(host))


def _faults(host: HostResult) -> Iterator[str]:
    for fault in host.faults:
        yield from fault.message.splitlines()
        yield from (f"→ {line}" for line in fault.remedy.splitlines())
