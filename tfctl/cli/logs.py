"""tfctl logs: show what tasks print, read from their hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli.common import InventoryOption, JobOption, OutputFormat, say, say_error
from tfctl.cli.lines import Printer
from tfctl.cli.times import moment
from tfctl.cli.which import open_task
from tfctl.errors import Exit, TfctlError, first_of

if TYPE_CHECKING:
    from tfctl.jobs.journal import Query
    from tfctl.jobs.state import JobState
    from tfctl.remote.fleet import Fleet


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: tfctl logs worker 3    tfctl logs digits-ps -f    tfctl logs --since 10m --grep loss"
    )(logs)


def logs(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] [ROLE [INDEX]]",
            show_default=False,
            help="A job's name or file (default: the running job, or the last one), then a role, or one task: "
            "worker 3, worker/3.",
        ),
    ] = None,
    job: JobOption = None,
    inventory: InventoryOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines too, until the job ends.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", metavar="N", min=0, help="Only the last N lines.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", show_default=False, help="Lines since 10m (ago) or 2026-11-22T13:00.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", show_default=False, help="Lines up to this time.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="REGEX", show_default=False, help="Only lines that match.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Begin each line with its time.")] = False,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="text, or json: an object per line.")
    ] = OutputFormat.text,
) -> int:
    """Show what tasks print, merged in chronological order. Works during the job and after it."""
    from tfctl.jobs import logs as job_logs
    from tfctl.jobs.journal import Query
    from tfctl.jobs.state import select

    times = moment(since, "--since"), moment(until, "--until")
    pattern = None if grep is None else job_logs.pattern(grep)
    with open_task(words or [], job, inventory) as opened:
        fleet, state, wanted = opened.fleet, opened.state, opened.task
        tasks = None if wanted is None else tuple(task.name for task in select(state, *wanted))
        query = Query(tasks, *times, tail, grep=pattern)
        printer = Printer(state, timestamps, output is OutputFormat.json)
        if follow and not state.over:
            return _follow(fleet, state, query, printer)
        errors: list[TfctlError] = []
        printer(job_logs.read(fleet, state, query, errors.append))
    for error in errors:
        say_error(error)
    return first_of(error.exit for error in errors)


def _follow(fleet: Fleet, state: JobState, query: Query, printer: Printer) -> Exit:
    """Print the lines of a job, and of the attempts after it, until it has ended. Return the exit code for the hosts
    whose lines are missing, each of which is reported once."""
    from tfctl.jobs import logs as job_logs
    from tfctl.jobs.attempts import Watch
    from tfctl.jobs.failures import FailureReporter

    errors: dict[str, TfctlError] = {}
    reporter = FailureReporter(say, query.tasks, before=state)

    def fail(error: TfctlError) -> None:
        if error.message not in errors:
            errors[error.message] = error
            say_error(error)

    def note(later: JobState, first: bool) -> None:
        if first:
            reporter.begin(later.attempt)
        reporter.note(later)

    answers = job_logs.answers_of(fleet, state, query)
    watch = Watch(fleet, state, answers, note)
    for lines in job_logs.follow_attempts(fleet, watch.attempts, query, say, answers, fail):
        printer(lines)
    if watch.error is not None:
        raise watch.error
    return first_of(error.exit for error in errors.values())
