"""tfctl stop: SIGTERM, grace period, SIGKILL, and a check that nothing is left."""

from __future__ import annotations

import typer

from tfctl.cli.common import InventoryOption, JobArgument, JobOption, find_job, say


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl stop digits-ps")(stop)


def stop(job: JobArgument = None, job_option: JobOption = None, inventory: InventoryOption = None) -> None:
    """Stop a job on all hosts. Safe to repeat and to interrupt."""
    from tfctl.jobs import show
    from tfctl.jobs.stop import stop as stop_job
    from tfctl.remote.fleet import Fleet

    found, name = find_job(job, job_option, inventory)
    with Fleet(found.hosts) as fleet:
        if name is None:
            name = show.one(fleet, None, changes=True)[0].job
            say(f"job: {name}")
        stopped = stop_job(fleet, name)
    say(f"{name}: stopped {', '.join(stopped)}" if stopped else f"{name}: nothing was running")
