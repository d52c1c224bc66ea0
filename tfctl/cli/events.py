"""tfctl events: show what happened to a job, one line per event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobArgument, JobOption, TableFormat, TableOption, say_error
from tfctl.cli.which import job_name, open_fleet
from tfctl.errors import first_of, of_hosts

if TYPE_CHECKING:
    from tfctl.cli.objects import EventsObject


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl events digits-ps -o json")(events)


def events(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: TableOption = TableFormat.text,
) -> int:
    """Show the events of a job in chronological order. These include all runs of its tasks, and what its guards did.

    Covers all attempts that the hosts still know. Times are by this machine's clock.
    """
    from tfctl.jobs import events as job_events

    with open_fleet(job, job_option, inventory) as (fleet, wanted):
        name = job_name(fleet, wanted)
        now, happened, errors = job_events.events(fleet, name)
    if output is TableFormat.json:
        found: EventsObject = {"job": name, "events": tables.events_json(happened)}
        text.print_json(found)
    else:
        text.show(tables.EVENTS.render(happened, output is TableFormat.wide))
    for error in errors:
        say_error(error)
    return first_of(error.exit for error in of_hosts(errors, now.hosts))
