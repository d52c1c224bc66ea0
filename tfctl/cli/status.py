"""tfctl status: show one job, task by task."""

from __future__ import annotations

from typing import Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, JobArgument, JobOption, Output, OutputOption, find_job, say


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl status digits-ps -o json")(status)


def status(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again at every change, until the job has ended.")
    ] = False,
) -> None:
    """Show a job's tasks with host, state and exit code. Failed tasks come first."""
    from tfctl.jobs import show
    from tfctl.jobs.state import JobState
    from tfctl.remote.fleet import Fleet

    def tell(state: JobState) -> None:
        if output is Output.json:
            text.print_json(state.json())
        else:
            typer.echo(text.status(state))

    found, name = find_job(job, job_option, inventory)
    with Fleet(found.hosts) as fleet:
        state, errors = show.one(fleet, name)
        if name is None:
            say(f"job: {state.job}")
        tell(state)
        for error in errors:
            say(f"tfctl: {error.message}")
        if watch and not state.ended:
            from tfctl.jobs.wait import changes

            fleet.narrow(state.hosts)
            for later in changes(fleet, state.job, state.attempt):
                if later != state:
                    tell(state := later)
                if later.ended:
                    break
