"""`tfctl lab`: a real cluster on this machine."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tfctl.lab import LabStatus

app = typer.Typer(
    name="lab",
    help="A real cluster on this machine. Its nodes have systemd, sshd and journald, in systemd-nspawn.",
    epilog="Example: tfctl lab up --nodes 4, then tfctl provision inventory/lab.ini",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameOption = Annotated[str, typer.Option("--name", help="Which lab; labs of different names live side by side.")]


class Output(StrEnum):
    text = "text"
    json = "json"


@app.command(epilog="Example: tfctl lab up --nodes 4")
def up(
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-n", show_default="4, or as many as the snapshot has", help="How many.")
    ] = None,
    name: NameOption = "lab",
    snapshot: Annotated[
        str | None, typer.Option("--from", metavar="SNAPSHOT", help="Boot them as a lab was left by lab snapshot.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            show_default="bookworm",
            help="Debian release: bullseye, bookworm or trixie; several by commas, given to the nodes in turn.",
        ),
    ] = None,
) -> None:
    """Boot a lab and write inventory/NAME.ini. A lab that is up is left as it is."""
    from tfctl import lab

    asked = lab.LabSpec(name, nodes, lab.parse_suites(suite) if suite is not None else None, snapshot)
    lab.up(asked, _say)
    _say(f"next: tfctl provision {_shown(asked.inventory_path)}")
    typer.echo(_shown(asked.inventory_path))


@app.command(epilog="Example: tfctl lab down --name lab")
def down(name: NameOption = "lab") -> None:
    """End a lab and leave nothing of it behind: no process, mount, link or rule, no disk, no inventory."""
    from tfctl import lab

    lab.down(name, _say)


@app.command(epilog="Example: tfctl lab status -o json")
def status(
    name: NameOption = "lab",
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print it.")] = Output.text,
) -> None:
    """Show a lab's nodes."""
    from tfctl import lab

    found = lab.status(name)
    if output is Output.json:
        _print_json(found)
    else:
        _print_table(found)


@app.command(epilog="Example: tfctl lab snapshot provisioned, later: tfctl lab up --name other --from provisioned")
def snapshot(
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Its name; one of that name is replaced.")],
    name: NameOption = "lab",
    delete: Annotated[bool, typer.Option("--delete", help="Delete the snapshot instead.")] = False,
) -> None:
    """Keep a lab as it is, for lab up --from. Its nodes are halted for that, and booted again."""
    from tfctl import lab

    if delete:
        lab.forget(snapshot, _say)
    else:
        lab.take(name, snapshot, _say)


def _print_json(found: LabStatus) -> None:
    import json
    from dataclasses import asdict

    typer.echo(json.dumps(asdict(found), indent=2, default=str))


def _print_table(found: LabStatus) -> None:
    rows = [("NODE", "ADDRESS", "SUITE", "STATE")]
    rows += [(node.name, node.address, node.suite, node.state) for node in found.nodes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for inventory in found.inventories:
        _say(f"inventory: {_shown(inventory)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _shown(path: Path) -> Path:
    """As one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
