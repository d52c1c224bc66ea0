"""tfctl check: find mistakes in a job file, its inventory and its code, without contacting any host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from tfctl.cli.common import (
    EnvOption,
    InventoryOption,
    JobFileArgument,
    JobFileOption,
    OutputFormat,
    OutputOption,
    named,
    say,
)
from tfctl.cli.start import CodeLimitOption
from tfctl.cli.text import print_json
from tfctl.cli.which import lay_out
from tfctl.errors import BadFile, Exit, together
from tfctl.wording import counted

if TYPE_CHECKING:
    from tfctl.cli.objects import CheckObject
    from tfctl.model.job import Layout


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl check job.yaml")(check)


def check(
    jobfile: JobFileArgument = None,
    job_option: JobFileOption = None,
    inventory: InventoryOption = None,
    env: EnvOption = None,
    code_limit: CodeLimitOption = 50,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Find mistakes in a job file without contacting any host. Reads its inventory and its code too.

    start checks the same, and render the same except the size of the code. tfctl run checks only the job file and
    that its scripts exist. Exit code: 3 if there are errors, 0 if there are warnings only.
    """
    file = named(jobfile, job_option, "job file")
    layout: Layout | None = None
    errors: Sequence[BadFile]
    try:
        layout = lay_out(file, inventory, env)
        errors, warnings = _check(layout, code_limit)
    except BadFile as error:
        errors, warnings = [error], []
    if output is OutputFormat.json:
        found: CheckObject = {
            "job": layout.name if layout else None,
            "tasks": len(layout.slots) if layout else None,
            "hosts": [host.name for host in layout.hosts] if layout else None,
            "errors": [{"message": error.message, "remedy": error.remedy} for error in errors],
            "warnings": warnings,
        }
        print_json(found)
        return Exit.BAD_FILE if errors else Exit.OK
    for warning in warnings:
        say(warning)
    if layout is None or errors:
        raise together(errors)
    typer.echo(
        f"{layout.name}: no errors; {counted(len(layout.slots), 'task')} on {counted(len(layout.hosts), 'host')}"
    )
    return Exit.OK


def _check(layout: Layout, code_limit: int) -> tuple[list[BadFile], list[str]]:
    """Return the errors and the warnings. Raise BadFile for code that cannot be packed, and as `assign` does."""
    from tfctl.jobs import check, code
    from tfctl.model import plan
    from tfctl.model.assign import draft

    listing = code.of_job(layout, code_limit)
    checked = check.check(layout, listing)
    code.archive(listing, code_limit)
    plan.files(draft(layout))
    return [*checked.errors], [*checked.warnings, *listing.remarks, *check.without_hosts(layout)]
