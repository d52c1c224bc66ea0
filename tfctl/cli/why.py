"""tfctl why: say what is wrong with a job, who is the cause, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, JobArgument, JobOption, OutputFormat, OutputOption, say_error
from tfctl.cli.which import open_job
from tfctl.errors import Unreachable
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.cli.objects import WhyObject
    from tfctl.jobs.why import Diagnosis


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl why digits-ps")(why)


def why(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Say why a job hangs or has failed: the task that is the cause, and what to do.

    The hosts measure the tasks for two seconds: processes, stacks, connections, last lines, disks and the kernel's log.
    The first line names the cause, the second one the remedy; the evidence is below. Exit code: 0, whatever is found.
    """
    from tfctl.jobs import why as reasons

    with open_job(job, job_option, inventory) as opened:
        found = reasons.why(opened.fleet, opened.state, opened.errors)
    if output is OutputFormat.json:
        text.print_json(_json(found))
    else:
        typer.echo("\n".join(map(plain, found.lines())))
    for error in opened.errors:
        if not isinstance(error, Unreachable):
            say_error(error)
    return 0


def _json(found: Diagnosis) -> WhyObject:
    return {
        "job": found.job,
        "state": found.state,
        "verdict": found.verdict,
        "culprits": [
            {
                "task": each.task or None,
                "host": each.host,
                "kind": each.kind,
                "sentence": plain(each.sentence),
                "remedy": plain(each.remedy),
            }
            for each in found.culprits
        ],
        "evidence": [plain(sentence) for sentence in found.evidence],
    }
