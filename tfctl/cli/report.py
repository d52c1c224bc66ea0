"""tfctl report: how fast jobs train, and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, say, say_error
from tfctl.cli.which import find_job, job_name, say_clocks
from tfctl.errors import TfctlError, UsageError, first_of
from tfctl.wording import shown, with_remedy

if TYPE_CHECKING:
    from tfctl.report.figures import Report, RunFigures
    from tfctl.report.table import Rows


class ReportFormat(StrEnum):
    text = "text"
    wide = "wide"
    json = "json"
    csv = "csv"
    markdown = "markdown"


FormatOption = Annotated[
    ReportFormat,
    typer.Option(
        "--output",
        "-o",
        help="text, wide (text with all columns), json (one object), csv (a line for each task), or markdown.",
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", show_default=False, help="Also draw speed-up and spread, as FILE.svg or FILE.png."
    ),
]

#: The columns that a narrow terminal may leave out, the most important first.
_RANKED = (
    "EXAMPLES/S", "SPEED-UP", "INPUT WAIT", "DEVICES", "SECONDS", "EFFICIENCY", "FIRST STEP", "SPREAD", "HOSTS",
    "STEPS/S", "STEPS", "STRATEGY", "MEAN", "MIN", "MAX",
)  # fmt: skip
_RANKS = {heading: rank for rank, heading in enumerate(_RANKED, 1)}


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl report resnet-1    tfctl report resnet-1 resnet-4 resnet-16 --plot speed.svg")(
        report
    )


def report(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...",
            show_default=False,
            help="Names or files of jobs (default: the running job, or the last one), or results of tfctl sweep "
            "(*.json).",
        ),
    ] = None,
    inventory: InventoryOption = None,
    output: FormatOption = ReportFormat.text,
    plot: PlotOption = None,
) -> int:
    """Show how fast jobs train, and how they compare.

    Shows the time, the steps and the examples per second of each task.

    Speed-up and efficiency compare several jobs with the one that has the fewest devices. Below the tables, the report
    names likely causes of a low speed: a slow task, the input, or the network.
    """
    from tfctl.report import plot as plots
    from tfctl.report.figures import compare

    if plot is not None:
        plots.require(plot)
    errors: list[TfctlError] = []
    found = compare(_runs(words or [], inventory, errors))
    show(found, output, plot)
    for error in errors:
        say_error(error)
    return first_of(error.exit for error in errors)


def show(report: Report, output: ReportFormat, plot: Path | None) -> None:
    """Print a report, and draw it if a file is given."""
    from tfctl.report import plot as plots
    from tfctl.report import table

    if output is ReportFormat.json:
        text.print_json(table.json_object(report))
    elif output is ReportFormat.csv:
        typer.echo(table.csv_text(report), nl=False)
    else:
        text.show(_tables(report, output))
    if plot is not None:
        plots.draw(report, plot)
        say(f"plot: {plot}")


def _tables(report: Report, output: ReportFormat) -> text.Rendered:
    """Return the runs, the tasks if there is one run alone, and the findings."""
    from tfctl.report import table
    from tfctl.report.findings import findings

    listed = [table.run_rows(report)]
    if len(report.runs) == 1:
        listed.append(table.task_rows(report.runs[0].run))
    tables = [_table(rows, output) for rows in listed]
    for finding in findings(report):
        what = shown(with_remedy(f"{finding.run}: {finding.cause}: {finding.why}", finding.check))
        tables.append(text.Rendered(what))
    return text.joined(tables)


def _table(rows: Rows, output: ReportFormat) -> text.Rendered:
    from tfctl.report import table

    if output is ReportFormat.markdown:
        return text.Rendered(table.markdown(rows))
    return text.table(rows, [_RANKS.get(heading, 0) for heading in rows[0]], wide=output is ReportFormat.wide)


def _runs(words: Sequence[str], inventory: Sequence[Path] | None, errors: list[TfctlError]) -> list[RunFigures]:
    """Return the runs in the files of sweeps, then those of the jobs that the hosts know."""
    from tfctl.report.sweep_file import load

    files = [Path(word) for word in words if word.endswith(".json")]
    jobs = [word for word in words if not word.endswith(".json")]
    found = [run for file in files for run in load(file).figures]
    if jobs or not files:
        found += _from_hosts(jobs, inventory, errors)
    if not found:
        raise UsageError(f"{files[0]} has no results yet", "tfctl sweep writes them")
    return found


def _from_hosts(jobs: Sequence[str], inventory: Sequence[Path] | None, errors: list[TfctlError]) -> list[RunFigures]:
    from tfctl.remote.fleet import Fleet
    from tfctl.report.read import read

    words: Sequence[str | None] = jobs or [None]
    found = [find_job(word, None, inventory) for word in words]
    first = found[0][0]
    # A name without a file means a job on the same hosts.
    of_files = [own for word, (own, name) in zip(words, found, strict=True) if name != word]
    sources = dict.fromkeys(each.source for each in (first, *of_files))
    if len(sources) > 1:
        raise UsageError(f"the jobs are on the hosts of several inventories: {', '.join(sources)}", "name one with -i")
    with Fleet(first.hosts) as fleet:
        runs = read(fleet, [job_name(fleet, name) for _, name in found], errors.append)
        say_clocks(fleet)
        return runs
