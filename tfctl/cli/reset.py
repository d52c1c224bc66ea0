"""`tfctl reset`: remove from hosts what `tfctl provision` has created there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import (
    AskBecomePassOption,
    InventoryArgument,
    LimitOption,
    OutputFormat,
    OutputOption,
    SameInventoryOption,
    named_inventory,
    say,
)
from tfctl.cli.host_results import ask_become_password, host_lines, run_shown
from tfctl.errors import UsageError
from tfctl.wording import Lines, counted

if TYPE_CHECKING:
    from tfctl.cli.objects import ResetHostObject, ResetObject
    from tfctl.provision.results import HostResult, PlayResult


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl reset inventory/lab.ini --limit node4 --check")(reset)


def reset(
    inventory: InventoryArgument = None,
    inventory_option: SameInventoryOption = None,
    limit: LimitOption = None,
    driver: Annotated[bool, typer.Option("--driver", help="Also remove the NVIDIA driver.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; list what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for a confirmation.")] = False,
    ask_become_pass: AskBecomePassOption = False,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Remove what `tfctl provision` has created on the hosts.

    Output directories, the records of jobs and the journal stay, and so does what existed before. Hosts that run a
    job are not changed (exit code 5).
    """
    from tfctl.provision import reset as use_case

    source = named_inventory(inventory, inventory_option)
    password = ask_become_password() if ask_become_pass else None
    if not (check or yes):
        confirm(source, limit)
    try:
        result = run_shown(use_case.reset, use_case.ResetRequest(source, limit, driver, check, password))
    except KeyboardInterrupt:
        say("run it again to continue")
        raise
    if output is OutputFormat.json:
        text.print_json(as_object(result, check))
    else:
        lines = host_lines(result, lambda host: _summary(host, check), lambda host: _details(host, check))
        typer.echo("\n".join(lines))
    return result.exit


def confirm(source: Path, limit: str | None) -> None:
    """Ask the user to type the number of hosts. Raise UsageError if there is no terminal, or for another answer."""
    from tfctl.model.pattern import select
    from tfctl.remote import inventory

    found = inventory.load(source)
    hosts = [host.name for host in (select(found, limit) if limit else found.hosts)]
    if not sys.stdin.isatty():
        raise UsageError("a reset must be confirmed, and there is no terminal", "add --yes")
    say(
        Lines(
            f"{counted(len(hosts), 'host')} of {source}: {', '.join(hosts)}",
            "This removes the stacks, accounts, files and packages that tfctl provision has created there.",
        )
    )
    answer = typer.prompt("Type the number of hosts to continue", err=True)
    if answer.strip() != str(len(hosts)):
        raise UsageError(f"{answer!r} is not {len(hosts)}: nothing was removed")


def as_object(result: PlayResult, check: bool) -> ResetObject:
    """Return the object that -o json prints."""
    hosts = [_host_object(host) for host in result.hosts]
    return {"check": check, "exit": int(result.exit), "hosts": hosts}


def _host_object(host: HostResult) -> ResetHostObject:
    return {
        "host": host.host,
        "removed": [*host.removed],
        "kept": [*host.kept],
        "failed": host.failed,
        "unreachable": host.unreachable,
        "reason": host.reason,
        "remedy": host.remedy,
    }


def _summary(host: HostResult, check: bool) -> str:
    if host.unreachable or host.failed:
        return "unreachable" if host.unreachable else "failed"
    if not host.removed:
        return "ok           there is nothing to remove"
    return f"ok           {'would remove' if check else 'removed'} {len(host.removed)}"


def _details(host: HostResult, check: bool) -> list[str]:
    kept = [f"kept {sentence}" for sentence in host.kept]
    return [*(f"would remove {what}" for what in host.removed if check), *kept]
