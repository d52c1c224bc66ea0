"""tfctl start: start a job on all its hosts, or on none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import (
    DryRunOption,
    EnvOption,
    FollowOption,
    InventoryOption,
    JobFileArgument,
    JobFileOption,
    Output,
    OutputOption,
    WaitOption,
    named,
    say,
    wants_json,
)
from tfctl.cli.times import limit
from tfctl.cli.which import lay_out, say_clocks
from tfctl.wording import running

if TYPE_CHECKING:
    from tfctl.jobs.code import Code
    from tfctl.model.job import Job, Layout
    from tfctl.remote.fleet import Fleet

#: How long (s) the first client in the queue tries again when starts without --queue are faster.
_PATIENCE_S = 5.0


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl start job.yaml --wait")(start)


def start(
    jobfile: JobFileArgument = None,
    job_option: JobFileOption = None,
    inventory: InventoryOption = None,
    env: EnvOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            show_default=False,
            help="Wait at most this long: with --queue for ports and GPUs, then with --wait for the end.",
        ),
    ] = None,
    follow: FollowOption = False,
    queue: Annotated[
        bool,
        typer.Option("--queue", help="Wait for ports and GPUs that other jobs hold, after those who wait already."),
    ] = False,
    code_limit: Annotated[
        int, typer.Option("--code-limit", metavar="MB", min=1, help="The largest size of the code.")
    ] = 50,
    output: OutputOption = Output.text,
) -> int:
    """Start a job: all its tasks on all its hosts, or nothing. Prints the job's name."""
    from tfctl.cli.wait import detaching, until_ended
    from tfctl.jobs import check, code, last
    from tfctl.jobs.elsewhere import Elsewhere
    from tfctl.jobs.start import preview
    from tfctl.jobs.start import start as start_job
    from tfctl.model import plan, unit
    from tfctl.remote.fleet import Fleet

    longest, as_json = limit(timeout, wait or follow or queue), wants_json(output, follow)
    layout = lay_out(named(jobfile, job_option, "job file"), inventory, env)
    listing = code.select(layout.code, layout.include, layout.env_file)
    checked = check.check(layout, listing.names, listing.names)
    checked.require()
    with Fleet(layout.hosts) as fleet, Elsewhere(layout.name, layout.others, say) as elsewhere:
        # Do the slow local work while the connections open.
        fleet.prepare()
        if not (dry_run or queue):
            elsewhere.ask()
        packed = code.archive(listing, code_limit)
        unit.template()
        for remark in (*checked.warnings, *listing.remarks):
            say(remark)
        if dry_run:
            planned = preview(fleet, layout, packed)
            if as_json:
                text.print_json(_object(planned))
            else:
                typer.echo(plan.text(planned))
            return 0
        job = _in_turn(fleet, layout, packed, longest) if queue else start_job(fleet, layout, packed, say, elsewhere)
        last.remember(layout.inventory, job.run)
        say_clocks(fleet)
        with detaching(job.name):
            say(f"{job.name}: attempt {job.attempt}, {running(len(job.tasks), len(layout.hosts))}")
            if not as_json:
                typer.echo(job.name, err=follow)
            elif not wait:
                text.print_json(_object(job))
            if wait or follow:
                return until_ended(fleet, job.name, job.attempt, longest, follow, as_json=as_json)
            return 0


def _in_turn(fleet: Fleet, layout: Layout, packed: Code, timeout: float | None) -> Job:
    """Start the job as soon as ports and GPUs are free and no other client is ahead."""
    from tfctl.jobs.elsewhere import Elsewhere
    from tfctl.jobs.queue import in_turn
    from tfctl.jobs.start import start as start_job

    def attempt() -> Job:
        with Elsewhere(layout.name, layout.others, say) as elsewhere:  # what runs there may change meanwhile
            return start_job(fleet, layout, packed, say, elsewhere, patience=_PATIENCE_S)

    return in_turn(fleet, layout.name, attempt, say, timeout)


def _object(job: Job) -> dict[str, object]:
    """Return what is started, as JSON."""
    tasks = [
        {"role": task.role, "index": task.index, "host": task.host.name, "address": task.address, "port": task.port}
        for task in job.tasks
    ]
    return {"job": job.name, "attempt": job.attempt, "run": job.run, "tasks": tasks}
