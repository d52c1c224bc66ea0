"""`tfctl lab`: a real cluster on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfctl.cli.common import Output, OutputOption, say

app = typer.Typer(
    name="lab",
    help="A real cluster on this machine. Its nodes have systemd, sshd and journald, in systemd-nspawn.",
    epilog="Example: tfctl lab up --nodes 4, then tfctl provision inventory/lab.ini",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameOption = Annotated[str, typer.Option("--name", help="Which lab; labs of different names live side by side.")]


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
    lab.up(asked, say)
    say(f"next: tfctl provision {_shown(asked.inventory_path)}")
    typer.echo(_shown(asked.inventory_path))


@app.command(epilog="Example: tfctl lab down --name lab")
def down(name: NameOption = "lab") -> None:
    """End a lab and leave nothing of it behind: no process, mount, link or rule, no disk, no inventory."""
    from tfctl import lab

    lab.down(name, say)


@app.command(epilog="Example: tfctl lab status -o json")
def status(name: NameOption = "lab", output: OutputOption = Output.text) -> None:
    """Show a lab's nodes."""
    from dataclasses import asdict

    from tfctl import lab
    from tfctl.cli import text

    found = lab.status(name)
    if output is Output.json:
        text.print_json(asdict(found))
        return
    rows = [("NODE", "ADDRESS", "SUITE", "STATE")]
    rows += [(node.name, node.address, node.suite, node.state) for node in found.nodes]
    typer.echo(text.table(rows, state=3))
    for inventory in found.inventories:
        say(f"inventory: {_shown(Path(inventory))}")


@app.command(epilog="Example: tfctl lab snapshot provisioned, later: tfctl lab up --name other --from provisioned")
def snapshot(
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Its name; one of that name is replaced.")],
    name: NameOption = "lab",
    delete: Annotated[bool, typer.Option("--delete", help="Delete the snapshot instead.")] = False,
) -> None:
    """Keep a lab as it is, for lab up --from. Its nodes are halted for that, and booted again."""
    from tfctl import lab

    if delete:
        lab.forget(snapshot, say)
    else:
        lab.take(name, snapshot, say)


def _shown(path: Path) -> Path:
    """As one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
