"""tfctl list: show every job that the hosts know, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, Output, OutputOption, say_error
from tfctl.cli.which import open_fleet

if TYPE_CHECKING:
    from tfctl.cli.objects import JobsObject


def add_to(app: typer.Typer) -> None:
    app.command("list", epilog="Example: tfctl list -o json")(list_jobs)


def list_jobs(
    job: Annotated[
        str | None, typer.Option("--job", "-j", show_default=False, help="Only this job: its name or file.")
    ] = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the jobs that the hosts know. Shows each job's latest attempt, the most recent job first."""
    from tfctl.jobs import show

    with open_fleet(None, job, inventory) as (fleet, name):
        if output is Output.json:
            states, errors = show.jobs(fleet, name)
            found: JobsObject = {"jobs": [tables.job_json(state) for state in states]}
            text.print_json(found)
        else:
            listed, errors = show.overview(fleet) if name is None else show.jobs(fleet, name)
            if listed:
                typer.echo(tables.JOBS.text(listed))
    for error in errors:
        say_error(error)
