"""tfctl verify: prove that the installed software works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli.common import InventoryArgument, SameInventoryOption, TableFormat, TableOption, named_inventory, say
from tfctl.cli.tables import Column, Table
from tfctl.errors import UsageError
from tfctl.wording import shown, with_remedy

if TYPE_CHECKING:
    from tfctl.verify.results import ProofResult, ProofResults

#: Up to this number of characters, the names of all hosts of a proof are in its row.
_HOSTS_WIDTH = 41


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl verify inventory/lab.ini --junit verify.xml")(verify)


def verify(
    inventory: InventoryArgument = None,
    inventory_option: SameInventoryOption = None,
    stack: Annotated[
        str | None, typer.Option(help="The stack to use, overriding the inventory's tfctl_stack.", show_default=False)
    ] = None,
    limit: Annotated[str, typer.Option(help="Only hosts that match this Ansible pattern.")] = "all",
    shared: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Also test that all hosts share this directory.", show_default=False),
    ] = None,
    burn_in: Annotated[
        float | None,
        typer.Option(
            "--burn-in",
            metavar="MINUTES",
            min=0.1,
            show_default=False,
            help="Also keep every GPU, or the processors, under load for this many minutes.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the results as JUnit XML, for CI.")
    ] = None,
    output: TableOption = TableFormat.text,
) -> int:
    """Run short jobs to test the installed software.

    nvidia-smi shows every GPU of each host. TensorFlow imports and sees its devices there. All-reduce works over all
    hosts and every pair, in TensorFlow and, if installed, in Horovod. Exit code 0 only if everything passed. --burn-in
    fails for a GPU that computes wrong results, has memory errors, is slowed down, or is slower than the others of its
    kind.
    """
    from tfctl.cli import text
    from tfctl.remote import inventory as inventories
    from tfctl.verify.run import Verification, run

    source = inventories.load(named_inventory(inventory, inventory_option))
    if junit and not junit.absolute().parent.is_dir():
        raise UsageError(f"--junit {junit}: no such directory")
    results = run(Verification(source, stack, limit, shared, burn_in and 60 * burn_in), say)
    if output is TableFormat.json:
        text.print_json(results.to_json())
    else:
        _print(results, output is TableFormat.wide)
    if junit:
        junit.write_text(results.to_junit(), "utf-8")
    return results.exit


def _print(results: ProofResults, wide: bool = False) -> None:
    from tfctl.cli import text

    listed = [result for result in results.all if not _is_usual_pair(result)]
    text.show(_PROOFS.render([(result, results) for result in listed], wide))
    for result in listed:
        if result.message:
            what = f"{result.proof} ({_hosts(result)}) {result.state}: " + result.message
            typer.echo("\n" + shown(with_remedy(what, result.remedy)))


def _is_usual_pair(result: ProofResult) -> bool:
    """Return whether the table needs no row for the result, because that of all hosts counts it."""
    return result.proof.endswith("-pair") and result.state == "ok" and not result.message


def _hosts(result: ProofResult) -> str:
    names = " ".join(result.hosts)
    few = len(result.hosts) == 1 or len(names) <= _HOSTS_WIDTH
    return names if few else f"{result.hosts[0]} and {len(result.hosts) - 1} more"


def _took(result: ProofResult) -> str:
    return "" if result.seconds is None else f"{result.seconds:.1f} s"


def _found(result: ProofResult, results: ProofResults) -> str:
    """Return a proof's details and, if it tests pairs, how many passed and which was the slowest."""
    from tfctl.verify.report import BurnInReport, Speed

    if isinstance(result.details, BurnInReport):
        return ", ".join(f"{device.device} {device.gflops:.0f} GFLOP/s" for device in result.details.devices)
    facts = [f"{name} {_shown(value)}" for name, value in result.facts().items() if value not in (None, "", [], {})]
    pairs = [r for r in results.all if r.proof == f"{result.proof}-pair"]
    inside = [r for r in pairs if r.state == "ok" and set(r.hosts) <= set(result.hosts)]
    speeds = {" ".join(r.hosts): r.details.mb_per_s for r in inside if isinstance(r.details, Speed)}
    if speeds:
        slowest = min(speeds, key=lambda hosts: speeds[hosts])
        facts.append(f"{len(speeds)} pairs, slowest {slowest} {speeds[slowest]} MB/s")
    return ", ".join(facts)


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


#: Of a result, among all results.
_PROOFS: Table[tuple[ProofResult, ProofResults]] = Table(
    Column("PROOF", lambda row: row[0].proof),
    Column("HOSTS", lambda row: _hosts(row[0])),
    Column("STATE", lambda row: row[0].state, coloured=True),
    Column("TOOK", lambda row: _took(row[0]), rank=1),
    Column("FOUND", lambda row: _found(*row), rank=2),
)
