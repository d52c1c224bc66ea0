"""`tfctl provision`: make every host match its stack."""

from __future__ import annotations

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
    PythonTreeOption,
    SameInventoryOption,
    StackOption,
    named_inventory,
    say,
)
from tfctl.cli.host_results import ask_become_password, host_lines, run_shown
from tfctl.provision.parts import PARTS
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.cli.objects import ProvisionedHostObject, ProvisionObject
    from tfctl.provision.results import HostResult, PlayResult


def add_to(app: typer.Typer) -> None:
    app.command("provision")(provision)


def provision(
    inventory: InventoryArgument = None,
    inventory_option: SameInventoryOption = None,
    stack: StackOption = None,
    limit: LimitOption = None,
    tags: Annotated[
        str | None,
        typer.Option(help=f"Only these parts: {', '.join(PARTS)}."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; report what would change.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes in files.")] = False,
    reboot: Annotated[
        bool,
        typer.Option(
            "--reboot", help="Reboot hosts whose driver needs it, unless a job or a process on a GPU runs there."
        ),
    ] = False,
    python_tree: PythonTreeOption = None,
    rollback: Annotated[
        bool,
        typer.Option(
            "--rollback",
            help="Only return each host's stack to its previous Python environment, or with --tags nvidia_driver its "
            "driver to the previous version.",
        ),
    ] = False,
    ask_become_pass: AskBecomePassOption = False,
    full: Annotated[
        bool, typer.Option("--full", help="Run all roles, even if nothing has changed since the last run.")
    ] = False,
    requirements: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Also install the packages of a job's requirements file; may be repeated.",
        ),
    ] = None,
    upgrade_driver: Annotated[
        bool,
        typer.Option(
            "--upgrade-driver",
            help="Move NVIDIA drivers that tfctl has installed to the newest version of their branch, host after host "
            "like a reboot. With --check, say what would move.",
        ),
    ] = False,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Make every host match its stack. A second run changes nothing."""
    from tfctl.provision import run as use_cases

    source = named_inventory(inventory, inventory_option)
    parts = tuple(part.strip() for part in tags.split(",")) if tags else ()
    trees = tuple(python_tree or ())
    password = ask_become_password() if ask_become_pass else None
    request = use_cases.ProvisionRequest(
        source, stack, limit, parts, check, diff, reboot, trees, rollback, password, full, tuple(requirements or ()),
        upgrade_driver,
    )  # fmt: skip
    try:
        result = run_shown(use_cases.provision, request)
    except KeyboardInterrupt:
        say("run it again to continue; nothing that jobs use was left incomplete")
        raise
    if output is OutputFormat.json:
        text.print_json(as_object(result, check))
    else:
        typer.echo("\n".join(host_lines(result, lambda host: _summary(host, check))))
    return result.exit


def as_object(result: PlayResult, check: bool) -> ProvisionObject:
    """Return the object that -o json prints."""
    hosts = [_host_object(host) for host in result.hosts]
    return {
        "check": check,
        "changed": result.changed,
        "exit": int(result.exit),
        "warnings": [*result.warnings],
        "hosts": hosts,
    }


def _host_object(host: HostResult) -> ProvisionedHostObject:
    return {
        "host": host.host,
        "ok": host.ok,
        "changed": host.changed,
        "failed": host.failed,
        "unreachable": host.unreachable,
        "begun": host.begun,
        "task": host.task,
        "reason": host.reason,
        "remedy": host.remedy,
        "drifts": [*host.drifts],
        "warnings": [*host.warnings],
    }


def _summary(host: HostResult, check: bool) -> str:
    if host.unreachable:
        return f"unreachable, in {plain(host.task)}"
    if not host.begun:
        return "not begun"
    changes = f"{'would change' if check else 'changed'} {host.changed}"
    return f"failed       {changes}, in {plain(host.task)}" if host.failed else f"ok           {changes}"
