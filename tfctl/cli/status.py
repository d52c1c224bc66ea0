"""tfctl status: show one job, task by task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobArgument, JobOption, TableFormat, TableOption, say, say_error
from tfctl.cli.stdout import require_reader
from tfctl.cli.which import for_missing_hosts, open_job

if TYPE_CHECKING:
    from tfctl.jobs.state import JobState


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl status digits-ps -o json")(status)


def status(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: TableOption = TableFormat.text,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again at every change, until the job has ended.")
    ] = False,
) -> int:
    """Show a job's tasks with host, state and exit code. Failed tasks come first.

    LAST LINE says how long ago a running task printed its last line, if that is more than a minute: it may be frozen.

    Exit code: 0 the job is shown, 4 one of its hosts cannot be reached, 8 one of them has not been provisioned.
    """

    def show(state: JobState) -> None:
        if output is TableFormat.json:
            text.print_json(tables.job_json(state))
        else:
            text.show(tables.job_text(state, output is TableFormat.wide))

    with open_job(job, job_option, inventory, lines=True, keep=watch) as opened:
        state = opened.state
        show(state)
        for error in opened.errors:
            say_error(error)
        if watch and not state.over:
            from tfctl.jobs.wait import Silence, changes

            for later in changes(opened.fleet, state.job, state.attempt, Silence(say)):
                if later != state:
                    show(state := later)
                    require_reader()
                if later.over:
                    break
    return for_missing_hosts(state, opened.errors)
