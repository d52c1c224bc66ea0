"""tfctl why: say what is wrong with a job, who is the cause, and what to do."""

from __future__ import annotations

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, JobArgument, JobOption, OutputFormat, OutputOption, say_error
from tfctl.cli.which import open_job
from tfctl.errors import Unreachable
from tfctl.wording import plain


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl why digits-ps")(why)


def why(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Name the task or host that makes a job hang or fail.

    The hosts measure running tasks for two seconds: processes, stacks, connections, last lines, disks and the kernel's
    log. The first line names the cause, the second one the remedy; the evidence is below.

    Exit code: 0 whatever is found, 4 no host answers.
    """
    from tfctl.jobs import why as reasons

    with open_job(job, job_option, inventory) as opened:
        found = reasons.why(opened.fleet, opened.state, opened.errors)
    if output is OutputFormat.json:
        text.print_json(reasons.as_object(found))
    else:
        typer.echo("\n".join(map(plain, found.lines())))
    for error in opened.errors:
        if not isinstance(error, Unreachable):
            say_error(error)
    return 0
