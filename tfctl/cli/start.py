"""tfctl start: start a job on all its hosts, or on none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    OutputFormat,
    OutputOption,
    WaitOption,
    named,
    say,
    wants_json,
)
from tfctl.cli.times import limit
from tfctl.cli.which import lay_out, say_clocks
from tfctl.wording import running, shown

if TYPE_CHECKING:
    from tfctl.cli.objects import StartedJobObject, StartedTaskObject
    from tfctl.jobs.code import CodeArchive
    from tfctl.jobs.other_hosts import OtherHosts
    from tfctl.model.job import Job, Layout
    from tfctl.remote.fleet import Fleet

#: How long (s) the first client in the queue tries again when starts without --queue are faster.
_RETRY_TIMEOUT_S = 5.0

CodeLimitOption = Annotated[
    int, typer.Option("--code-limit", metavar="MB", min=1, help="The largest size of the code.")
]


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
            help="Wait at most this long: with --queue for ports and GPUs, then with --wait or --follow for the end.",
        ),
    ] = None,
    follow: FollowOption = False,
    queue: Annotated[
        bool,
        typer.Option(
            "--queue", help="Wait for ports and GPUs that other jobs hold, behind starts that are already waiting."
        ),
    ] = False,
    code_limit: CodeLimitOption = 50,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Start a job: all its tasks on all its hosts, or nothing. Prints the job's name."""
    from tfctl.cli.wait import detaching, until_ended
    from tfctl.jobs.start import preview
    from tfctl.model import plan

    longest, as_json = limit(timeout, wait or follow or queue), wants_json(output, follow)
    layout = lay_out(named(jobfile, job_option, "job file"), inventory, env)
    with packed(layout, code_limit, ask=not (dry_run or queue)) as ready:
        if dry_run:
            planned = preview(ready.fleet, layout, ready.code)
            if as_json:
                text.print_json(_object(planned))
            else:
                typer.echo(shown(plan.text(planned)))
            return 0
        job = ready.start_in_turn(longest) if queue else ready.start()
        with detaching(job.name):
            say(f"{job.name}: attempt {job.attempt}, {running(len(job.tasks), len(layout.hosts))}")
            if not as_json:
                typer.echo(job.name, err=follow)
            elif not wait:
                text.print_json(_object(job))
            if wait or follow:
                started = [task.name for task in job.tasks]
                return until_ended(ready.fleet, job.name, job.attempt, longest, follow, as_json=as_json, alive=started)
            return 0


@dataclass(frozen=True)
class Ready:
    """A job that can be started: the connections to its hosts, and its code, packed."""

    layout: Layout
    fleet: Fleet
    code: CodeArchive
    others: OtherHosts

    def start(self, note: Callable[[Job], object] = lambda _: None) -> Job:
        """Start the job, and remember it for later commands. ``note`` gets it before any of its units is started."""
        from tfctl.jobs.start import start as start_job

        return self._started(start_job(self.fleet, self.layout, self.code, say, self.others, note=note))

    def start_in_turn(self, timeout: float | None) -> Job:
        """Start the job as soon as ports and GPUs are free and no other client is ahead. ``timeout``: in seconds."""
        from tfctl.jobs.other_hosts import OtherHosts
        from tfctl.jobs.queue import in_turn
        from tfctl.jobs.start import start as start_job

        def attempt() -> Job:
            with OtherHosts(self.layout.name, self.layout.others, say) as others:  # what runs there may change
                return start_job(self.fleet, self.layout, self.code, say, others, patience=_RETRY_TIMEOUT_S)

        return self._started(in_turn(self.fleet, self.layout.name, attempt, say, timeout))

    def _started(self, job: Job) -> Job:
        from tfctl.jobs import start_history

        start_history.remember(self.layout.inventory, job.run)
        say_clocks(self.fleet)
        return job


@contextmanager
def packed(layout: Layout, code_limit: int, ask: bool = True) -> Iterator[Ready]:
    """Check a job and pack its code, and keep the connections to its hosts for the block.

    ``ask``: also ask the other hosts of the inventory about the job.
    """
    from tfctl.jobs import check, code
    from tfctl.jobs.other_hosts import OtherHosts
    from tfctl.model import unit
    from tfctl.remote.fleet import Fleet

    listing = code.of_job(layout, code_limit)
    checked = check.check(layout, listing)
    checked.require()
    with Fleet(layout.hosts) as fleet, OtherHosts(layout.name, layout.others, say) as others:
        # Do the slow local work while the connections open.
        fleet.prepare()
        if ask:
            others.ask()
        archive = code.archive(listing, code_limit)
        unit.template()
        for remark in (*checked.warnings, *listing.remarks):
            say(remark)
        yield Ready(layout, fleet, archive, others)


def _object(job: Job) -> StartedJobObject:
    """Return what is started, as JSON."""
    tasks: list[StartedTaskObject] = [
        {"role": task.role, "index": task.index, "host": task.host.name, "address": task.address, "port": task.port}
        for task in job.tasks
    ]
    return {"job": job.name, "attempt": job.attempt, "run": job.run, "tasks": tasks}
