"""tfctl verify: prove that what is installed works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli.common import InventoryArgument, Output, OutputOption, SameInventoryOption, named, say
from tfctl.errors import UsageError
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.verify.report import Report, Result


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
        typer.Option(metavar="DIR", help="Also prove that all hosts share this directory.", show_default=False),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the results as JUnit XML, for CI.")
    ] = None,
    output: OutputOption = Output.text,
) -> int:
    """Prove that what is installed works, by short jobs on the hosts.

    TensorFlow imports and sees its devices on each host. All-reduce works over all hosts and every pair, in TensorFlow
    and, if installed, in Horovod. Exit code 0 only if everything passed.
    """
    from tfctl.cli import text
    from tfctl.remote import inventory as inventories
    from tfctl.verify import run as proofs

    source = inventories.load(named(inventory, inventory_option, "inventory"))
    if junit and not junit.absolute().parent.is_dir():
        raise UsageError(f"--junit {junit}: no such directory")
    report = proofs.run(proofs.Request(source, stack, limit, shared), say)
    if output is Output.json:
        text.print_json(report.to_json())
    else:
        _print(report)
    if junit:
        junit.write_text(report.to_junit(), "utf-8")
    return report.exit


def _print(report: Report) -> None:
    from tfctl.cli import text

    shown = [result for result in report.results if not (result.proof.endswith("-pair") and result.state == "ok")]
    rows = [("PROOF", "HOSTS", "STATE", "TOOK", "FOUND")]
    rows += [(r.proof, _hosts(r), r.state, _took(r), _found(r, report)) for r in shown]
    typer.echo(text.table(rows, state=2))
    for result in shown:
        if result.state != "ok":
            typer.echo(plain(f"\n{result.proof} ({_hosts(result)}) {result.state}: {result.message}"))
            if result.remedy:
                typer.echo(plain(f"  → {result.remedy}"))


def _hosts(result: Result) -> str:
    few = len(result.hosts) <= 4
    return " ".join(result.hosts) if few else f"{result.hosts[0]} and {len(result.hosts) - 1} more"


def _took(result: Result) -> str:
    return "" if result.seconds is None else f"{result.seconds:.1f} s"


def _found(result: Result, report: Report) -> str:
    """Return a proof's details and, if it tests pairs, how many passed and which was the slowest."""
    facts = [f"{name} {_shown(value)}" for name, value in result.details.items() if value not in (None, "", [], {})]
    pairs = [r for r in report.results if r.proof == f"{result.proof}-pair"]
    good = [r for r in pairs if r.state == "ok" and set(r.hosts) <= set(result.hosts)]
    if good:
        slowest = min(good, key=lambda r: r.details["mb_per_s"])
        facts.append(f"{len(good)} pairs, slowest {' '.join(slowest.hosts)} {slowest.details['mb_per_s']} MB/s")
    return ", ".join(facts)


def _shown(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
