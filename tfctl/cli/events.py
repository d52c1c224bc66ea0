"""tfctl events: show what happened to a job, one line per event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, JobArgument, JobOption, Output, OutputOption, find_job, say
from tfctl.errors import first_of

if TYPE_CHECKING:
    from tfctl.jobs.events import Event


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl events digits-ps -o json")(events)


def events(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Show what happened to a job, in order of time. That is starts, stops and restarts, and every run of every task.

    Covers all attempts that the hosts still know. Times are by each host's own clock.
    """
    from tfctl.jobs import events as job_events
    from tfctl.jobs import show
    from tfctl.remote.fleet import Fleet

    found, name = find_job(job, job_option, inventory)
    with Fleet(found.hosts) as fleet:
        if name is None:
            name = show.one(fleet, None)[0].job
            say(f"job: {name}")
        now, told, errors = job_events.events(fleet, name)
    if output is Output.json:
        text.print_json({"job": name, "events": [event.json() for event in told]})
    else:
        rows = [("TIME", "ATTEMPT", "TASK", "HOST", "EVENT", "HOW"), *map(_row, told)]
        typer.echo(text.table(rows, state=4))
    for error in errors:
        say(f"tfctl: {error.message}")
    return first_of(error.exit for error in errors if error.message.partition(":")[0] in now.hosts)


def _row(event: Event) -> tuple[str, ...]:
    code = "" if event.exit_code is None else f"exit code {event.exit_code}"
    how = event.signal or code or event.reason or (f"by {event.by}" if event.by else "")
    return (text.clock(event.time), str(event.attempt), event.task, event.host or "", event.event, how)
