"""tfctl list: show every job that the hosts know, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, TableFormat, TableOption, say_error
from tfctl.cli.which import for_missing_hosts, open_fleet
from tfctl.errors import first_of

if TYPE_CHECKING:
    from tfctl.cli.objects import JobsObject
    from tfctl.jobs.past import PastJob
    from tfctl.jobs.state import JobState


def add_to(app: typer.Typer) -> None:
    app.command("list", epilog="Example: tfctl list -o json")(list_jobs)


def list_jobs(
    job: Annotated[
        str | None, typer.Option("--job", "-j", show_default=False, help="Only this job: its name or file.")
    ] = None,
    inventory: InventoryOption = None,
    output: TableOption = TableFormat.text,
) -> int:
    """List the jobs that the hosts know. Shows each job's latest attempt, the most recent job first.

    Exit code: 0 all hosts answer, 4 one cannot be reached, 8 one of them has not been provisioned. With --job,
    only the hosts of that job count. For an unknown job, the list is empty.
    """
    from tfctl.jobs import show

    with open_fleet(None, job, inventory, keep=job is None) as (fleet, name):
        states: list[JobState] = []
        listed: Sequence[JobState | PastJob]
        if name is None and output is not TableFormat.json:
            listed, errors = show.overview(fleet)
        else:
            states, errors = show.jobs(fleet, name)
            listed = states
    if output is TableFormat.json:
        found: JobsObject = {"jobs": [tables.job_json(state) for state in states]}
        text.print_json(found)
    elif listed:
        text.show(tables.JOBS.render(listed, output is TableFormat.wide))
    for error in errors:
        say_error(error)
    if name is not None and states:
        return for_missing_hosts(states[0], errors)
    return first_of(error.exit for error in errors)
