"""`tfctl preflight`: report what would prevent provisioning, without changing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tfctl.cli import text
from tfctl.cli.common import (
    InventoryArgument,
    LimitOption,
    Output,
    OutputOption,
    PythonTreeOption,
    SameInventoryOption,
    StackOption,
    named,
)
from tfctl.errors import Exit, first_of
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.remote.report import HostReport


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl preflight inventory/lab.ini --stack tf2.15")(preflight)


def preflight(
    inventory: InventoryArgument = None,
    inventory_option: SameInventoryOption = None,
    stack: StackOption = None,
    limit: LimitOption = None,
    python_tree: PythonTreeOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Report what would prevent provisioning; change nothing. Examines every host and lists all its faults.

    Exit code: 0 all hosts are fit, 8 one is not, 4 one cannot be reached, 3 the inventory asks for the impossible.
    """
    from tfctl.cli.progress import Progress
    from tfctl.remote import provision as use_case

    source = named(inventory, inventory_option, "inventory")
    with Progress() as progress:
        request = use_case.Request(source, stack, limit, python_trees=tuple(python_tree or ()))
        report = use_case.preflight(request, progress.take)
    code = first_of(code for host in report.hosts if (code := exit_of(host)))
    if output is Output.json:
        text.print_json({"exit": int(code), "hosts": [as_object(host) for host in report.hosts]})
    else:
        typer.echo("\n".join(_lines(report.hosts)))
    return code


def exit_of(host: HostReport) -> Exit:
    """Return a host's exit code. A host that cannot be examined counts as unfit."""
    return Exit.PREFLIGHT if host.exit is Exit.FAILED else host.exit


def as_object(host: HostReport) -> dict[str, Any]:
    """Return an element of what -o json prints."""
    return {"host": host.host, "state": _state(host), "exit": int(exit_of(host)), "faults": list(host.faults)}


def _state(host: HostReport) -> str:
    return "unreachable" if host.unreachable else "unfit" if host.failed else "fit"


def _lines(hosts: tuple[HostReport, ...]) -> list[str]:
    width = max(len(host.host) for host in hosts)
    found = []
    for host in hosts:
        found.append(f"{host.host:{width}}  {text.state_word(_state(host))}")
        for fault in host.faults:
            found += [f"{'':{width}}  {plain(line)}" for line in fault["message"].splitlines()]
            found += [f"{'':{width}}  → {plain(line)}" for line in fault["remedy"].splitlines()]
    return found
