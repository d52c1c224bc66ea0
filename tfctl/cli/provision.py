"""`tfctl provision`: make every host match its stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
    say,
)
from tfctl.errors import Exit
from tfctl.remote.parts import TAGS
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.remote.report import HostReport, Report


def add_to(app: typer.Typer) -> None:
    app.command("provision")(provision)


def provision(
    inventory: InventoryArgument = None,
    inventory_option: SameInventoryOption = None,
    stack: StackOption = None,
    limit: LimitOption = None,
    tags: Annotated[
        str | None,
        typer.Option(help=f"Only these parts: {', '.join(TAGS)}."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; report what would change.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes in files.")] = False,
    reboot: Annotated[
        bool, typer.Option("--reboot", help="Reboot hosts whose new driver needs it, but never one that runs a job.")
    ] = False,
    python_tree: PythonTreeOption = None,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Only set each host's stack back to the previous one.")
    ] = False,
    output: OutputOption = Output.text,
) -> int:
    """Make every host match its stack. A second run changes nothing."""
    from tfctl.cli.progress import Progress
    from tfctl.remote import provision as use_case

    source = named(inventory, inventory_option, "inventory")
    parts = tuple(part.strip() for part in tags.split(",")) if tags else ()
    trees = tuple(python_tree or ())
    request = use_case.Request(source, stack, limit, parts, check, diff, reboot, trees, rollback)
    try:
        with Progress() as progress:
            report = use_case.run(request, progress.take)
    except KeyboardInterrupt:
        say("interrupted: nothing that jobs use is left half done; run it again to continue")
        return Exit.INTERRUPTED
    if output is Output.json:
        text.print_json(as_object(report, check))
    else:
        _print(report, check)
    return report.exit


def as_object(report: Report, check: bool) -> dict[str, Any]:
    """Return the object that -o json prints."""
    keys = ("host", "ok", "changed", "failed", "unreachable", "task", "reason", "remedy")
    hosts = [{key: getattr(host, key) for key in keys} for host in report.hosts]
    return {"check": check, "changed": report.changed, "exit": int(report.exit), "hosts": hosts}


def _print(report: Report, check: bool) -> None:
    width = max(len(host.host) for host in report.hosts)
    for host in report.hosts:
        print(f"{host.host:{width}}  {_told(host, check)}")
        if host.task:
            print(f"{'':{width}}  in {host.task}")
            for line in host.reason.splitlines():
                print(f"{'':{width}}  {plain(line)}")
            for line in host.remedy.splitlines():
                print(f"{'':{width}}  → {plain(line)}")


def _told(host: HostReport, check: bool) -> str:
    state = "unreachable" if host.unreachable else "failed" if host.failed else "ok"
    would = "would change" if check else "changed"
    return f"{state:11}  {would} {host.changed}" if state != "unreachable" else state
