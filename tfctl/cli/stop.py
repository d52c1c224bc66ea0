"""tfctl stop: SIGTERM, grace period, SIGKILL, and a check that nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import ChangedJobArgument, InventoryOption, JobOption, OutputFormat, OutputOption, say
from tfctl.cli.which import open_fleet, require_meant, say_job
from tfctl.wording import abbreviated

if TYPE_CHECKING:
    from tfctl.cli.objects import StoppedJobObject


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl stop digits-ps")(stop)


def stop(
    job: ChangedJobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    now: Annotated[
        bool, typer.Option("--now", help="Send SIGKILL after 2 s, whatever the grace period of the job is.")
    ] = False,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Stop a job on all hosts. Safe to repeat and to interrupt.

    Without a name, it stops the only job that runs. It asks first unless you have started that job from this directory.
    """
    from tfctl.jobs import show
    from tfctl.jobs.stop import stop as stop_job

    with open_fleet(job, job_option, inventory) as (fleet, name):
        run = None
        if name is None:
            state = show.one(fleet, None, changes=True)[0]
            name, run = state.job, None if state.others else state.record.run
            say_job(name)
            require_meant(state, "stop")
        stopped = stop_job(fleet, name, run=run, say=say, now=now)
    if output is OutputFormat.json:
        found: StoppedJobObject = {"job": name, "stopped": stopped}
        text.print_json(found)
    say(f"{name}: stopped {abbreviated(stopped)}" if stopped else f"{name}: nothing was running")
