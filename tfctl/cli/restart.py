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
from tfctl.cli.which import open_task, require_meant, task_of
from tfctl.wording import running, shown

if TYPE_CHECKING:
    from tfctl.cli.objects import RestartedJobObject
    from tfctl.cli.which import OpenJob


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
    """Stop a job and run its next attempt, or restart one task. Both use the code and settings of the original start.

    The hosts keep the files that this needs until the job is stopped or they reboot. To run a changed job file or code,
    use tfctl start. A single task restarts in the same attempt; docs/strategies.md describes how this affects the
    other tasks.
    """
    from tfctl.cli.wait import detaching, running_tasks, until_ended

    longest, as_json = limit(timeout, wait or follow), wants_json(output, follow)
    with open_task(words or [], job_option, inventory, changes=True) as opened:
        state = opened.state
        if not (opened.named or dry_run):
            require_meant(state, "restart")
        if dry_run:
            attempt, planned = _planned(opened)
            if as_json:
                _print_json(state.job, attempt)
            else:
                typer.echo(shown(planned))
            return 0
        attempt = _task(opened) if opened.task else _whole(opened)
        alive = {*running_tasks(state), task_of(opened).name} if opened.task else [task.name for task in state.tasks]
        with detaching(state.job):
            if not as_json:
                typer.echo(state.job, err=follow)
            elif not wait:
                _print_json(state.job, attempt)
            if wait or follow:
                return until_ended(opened.fleet, state.job, attempt, longest, follow, as_json=as_json, alive=alive)
            return 0


def _planned(opened: OpenJob) -> tuple[int, str]:
    """Return the number of the attempt that would run, and text about what would happen."""
    from tfctl.jobs.restart import preview

    state = opened.state
    if opened.task is None:
        return state.attempt + 1, preview(opened.fleet, state)
    task = task_of(opened)
    return state.attempt, f"{state.job}: attempt {state.attempt}, {task} on {task.host}, {task.state} now"


def _whole(opened: OpenJob) -> int:
    """Restart the whole job. Return the number of the attempt that runs now."""
    from tfctl.jobs import start_history
    from tfctl.jobs.other_hosts import OtherHosts
    from tfctl.jobs.restart import restart as restart_job

    state = opened.state
    with OtherHosts(state.job, opened.others, say) as others:
        record = restart_job(opened.fleet, state, others, say)
    start_history.remember(opened.inventory, record.run)
    say(f"{state.job}: attempt {record.attempt}, {running(len(state.tasks), len(state.hosts))}")
    return record.attempt


def _task(opened: OpenJob) -> int:
    """Restart the task that the command line names. Return the number of its attempt."""
    from tfctl.jobs.restart import restart_task

    state, task = opened.state, task_of(opened)
    restart_task(opened.fleet, state, task)
    say(f"{state.job}: {task} runs again on {task.host}")
    return state.attempt


def _print_json(job: str, attempt: int) -> None:
    restarted: RestartedJobObject = {"job": job, "attempt": attempt}
    text.print_json(restarted)
