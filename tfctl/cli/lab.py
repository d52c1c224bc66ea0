"""`tfctl lab`: a real cluster on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli.common import OutputFormat, OutputOption, TableFormat, TableOption, say
from tfctl.cli.tables import Column, Table

if TYPE_CHECKING:
    from tfctl.cli.objects import LabRemovedObject, LabSnapshotObject
    from tfctl.lab import LabStatus
    from tfctl.lab.status import NodeStatus

app = typer.Typer(
    name="lab",
    help="Manage a lab, a cluster of containers on this machine. Its nodes run systemd, sshd and journald.",
    epilog="Example: tfctl lab up --nodes 4, then tfctl provision inventory/lab.ini",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_to(parent: typer.Typer) -> None:
    parent.add_typer(app)


NameOption = Annotated[str, typer.Option("--name", help="The lab's name; several labs can run side by side.")]


@app.command(epilog="Example: tfctl lab up --nodes 4")
def up(
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-n", show_default="4, or the snapshot's", help="The number of nodes.")
    ] = None,
    name: NameOption = "lab",
    snapshot: Annotated[
        str | None, typer.Option("--from", metavar="SNAPSHOT", help="Boot from a snapshot taken by lab snapshot.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            show_default="bookworm",
            help="Debian release: bullseye, bookworm or trixie. A comma-separated list is used for the nodes in turn.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Boot a lab and write inventory/NAME.ini. A running lab is left as it is."""
    from tfctl import lab

    asked = lab.LabSpec(name, nodes, lab.parse_suites(suite) if suite is not None else None, snapshot)
    lab.up(asked, say)
    say(f"next: tfctl provision {_relative(asked.inventory_path)}")
    if output is OutputFormat.json:
        _print_status(lab.status(name))
    else:
        typer.echo(_relative(asked.inventory_path))


@app.command(epilog="Example: tfctl lab down --name lab")
def down(name: NameOption = "lab", output: OutputOption = OutputFormat.text) -> None:
    """Shut down a lab and remove everything: processes, mounts, links, firewall rules, disks and inventory."""
    from tfctl import lab
    from tfctl.cli import text

    lab.down(name, say)
    if output is OutputFormat.json:
        found: LabRemovedObject = {"name": name}
        text.print_json(found)


@app.command(epilog="Example: tfctl lab status -o json")
def status(name: NameOption = "lab", output: TableOption = TableFormat.text) -> None:
    """Show a lab's nodes."""
    from tfctl import lab
    from tfctl.cli import text

    found = lab.status(name)
    if output is TableFormat.json:
        _print_status(found)
        return
    text.show(_NODES.render(found.nodes, output is TableFormat.wide))
    for inventory in found.inventories:
        say(f"inventory: {_relative(Path(inventory))}")


@app.command(epilog="Example: tfctl lab snapshot provisioned, later: tfctl lab up --name other --from provisioned")
def snapshot(
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's name; an existing one is replaced.")
    ],
    name: NameOption = "lab",
    delete: Annotated[bool, typer.Option("--delete", help="Delete the snapshot instead.")] = False,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Save a lab's state for lab up --from. Its nodes are halted meanwhile, then booted again."""
    from tfctl import lab
    from tfctl.cli import text

    if delete:
        lab.forget(snapshot, say)
    else:
        lab.take(name, snapshot, say)
    if output is OutputFormat.json:
        found: LabSnapshotObject = {"snapshot": snapshot, "lab": None if delete else name, "deleted": delete}
        text.print_json(found)


def _print_status(found: LabStatus) -> None:
    from dataclasses import asdict

    from tfctl.cli import text

    text.print_json(asdict(found))


def _relative(path: Path) -> Path:
    """Return the path relative to the current directory, if it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


_NODES: Table[NodeStatus] = Table(
    Column("NODE", lambda node: node.name),
    Column("ADDRESS", lambda node: node.address, rank=1),
    Column("SUITE", lambda node: node.suite, rank=2),
    Column("STATE", lambda node: node.state, coloured=True),
)
