"""tfctl list: show every job that the hosts know, one line each."""

from __future__ import annotations

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, JobOption, Output, OutputOption, find_job, say


def add_to(app: typer.Typer) -> None:
    app.command("list", epilog="Example: tfctl list -o json")(list_jobs)


def list_jobs(job: JobOption = None, inventory: InventoryOption = None, output: OutputOption = Output.text) -> None:
    """List the jobs that the hosts know. Shows each job's latest attempt, the most recent job first."""
    from tfctl.jobs import show
    from tfctl.remote.fleet import Fleet

    found, name = find_job(None, job, inventory)
    with Fleet(found.hosts) as fleet:
        states, errors = show.jobs(fleet, name)
    if output is Output.json:
        text.print_json({"jobs": [state.json() for state in states]})
    elif states:
        rows = [("JOB", "ATTEMPT", "STATE", "STRATEGY", "TASKS", "HOSTS", "STARTED", "LASTED")]
        for each in states:
            rows.append(
                (each.job, str(each.attempt), each.state, str(each.record["strategy"]),
                 str(len(each.tasks)), str(len(each.hosts)), text.clock(each.record["started"]),
                 "" if each.ended and not each.finished else text.lasted(each.record["started"], each.finished))
            )  # fmt: skip
        typer.echo(text.table(rows, state=2))
    for error in errors:
        say(f"tfctl: {error.message}")
