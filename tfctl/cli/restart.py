"""tfctl restart: run a job's next attempt, or restart one task in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import (
    DryRunOption,
    FollowOption,
    InventoryOption,
    JobOption,
    OutputFormat,
    OutputOption,
    WaitOption,
    say,
    wants_json,
)
from tfctl.cli.times import limit
from tfctl.cli.which import open_task, require_meant
from tfctl.wording import running

if TYPE_CHECKING:
    from tfctl.cli.objects import RestartedJobObject
    from tfctl.jobs.state import JobState
    from tfctl.remote.fleet import Fleet


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl restart digits-ps --wait    tfctl restart digits-ps worker 3")(restart)


def restart(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] [ROLE [INDEX]]",
            show_default=False,
            help="A job's name or file (default: the running job), then a task to restart alone: worker 3, worker/3.",
        ),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout", metavar="DURATION", show_default=False, help="With --wait or --follow, wait at most this long."
        ),
    ] = None,
    follow: FollowOption = False,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Stop a job and run its next attempt, or restart one task. Both run as they were first started.

    The hosts keep the files that this needs until the job is stopped or they reboot. To run a changed job file or code,
    use tfctl start. A single task restarts in the same attempt; docs/strategies.md describes how this affects the
    other tasks.
    """
    from tfctl.cli.wait import detaching, until_ended

    longest, as_json = limit(timeout, wait or follow), wants_json(output, follow)
    with open_task(words or [], job_option, inventory, changes=True) as found:
        fleet, state = found.fleet, found.state
        if not (found.named or dry_run):
            require_meant(state, "restart")
        if dry_run:
            attempt, planned = _planned(fleet, state, found.task)
            if as_json:
                _print_json(state.job, attempt)
            else:
                typer.echo(planned)
            return 0
        attempt = _task(fleet, state, found.task) if found.task else _whole(fleet, state)
        with detaching(state.job):
            if not as_json:
                typer.echo(state.job, err=follow)
            elif not wait:
                _print_json(state.job, attempt)
            if wait or follow:
                return until_ended(fleet, state.job, attempt, longest, follow, as_json=as_json)
            return 0


def _planned(fleet: Fleet, state: JobState, wanted: tuple[str, int | None] | None) -> tuple[int, str]:
    """Return the number of the attempt that would run, and text about what would happen."""
    from tfctl.jobs.restart import preview
    from tfctl.jobs.state import select_one

    if wanted is None:
        return state.attempt + 1, preview(fleet, state)
    task = select_one(state, *wanted)
    return state.attempt, f"{state.job}: attempt {state.attempt}, {task} on {task.host}, {task.state} now"


def _whole(fleet: Fleet, state: JobState) -> int:
    """Restart the whole job. Return the number of the attempt that runs now."""
    from tfctl.jobs import start_history
    from tfctl.jobs.restart import restart as restart_job

    record = restart_job(fleet, state, say)
    start_history.remember(fleet.inventory, record.run)
    say(f"{state.job}: attempt {record.attempt}, {running(len(state.tasks), len(state.hosts))}")
    return record.attempt


def _task(fleet: Fleet, state: JobState, wanted: tuple[str, int | None]) -> int:
    from tfctl.jobs.restart import restart_task
    from tfctl.jobs.state import select_one

    task = select_one(state, *wanted)
    restart_task(fleet, state, task)
    say(f"{state.job}: {task} runs again on {task.host}")
    return state.attempt


def _print_json(job: str, attempt: int) -> None:
    restarted: RestartedJobObject = {"job": job, "attempt": attempt}
    text.print_json(restarted)
