"""tfctl sweep: run a job file with each combination of several settings, and compare the runs."""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import (
    EnvOption,
    InventoryOption,
    JobFileArgument,
    JobFileOption,
    named,
    say,
    say_error,
)
from tfctl.cli.report import FormatOption, PlotOption, ReportFormat, show
from tfctl.cli.start import CodeLimitOption, packed
from tfctl.cli.tables import Column, Table
from tfctl.cli.wait import detaching, reporting_the_outcome, running_tasks, sentence
from tfctl.cli.which import lay_out
from tfctl.errors import Busy, Exit, NotFound, TfctlError, Unreachable, UsageError
from tfctl.wording import counted

if TYPE_CHECKING:
    from tfctl.cli.objects import PlannedRunObject, SweepObject
    from tfctl.jobs.state import JobState
    from tfctl.model.job import Job, Layout
    from tfctl.node.wire import TaskName
    from tfctl.remote.fleet import Fleet
    from tfctl.report.sweep_file import SweepResults, SweepRun
    from tfctl.report.sweep_variants import Variant


class _NoResult(TfctlError):
    exit = Exit.JOB_FAILED


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Example: tfctl sweep job.yaml --set roles.worker.replicas=1,2,4 "
        "--set strategy=horovod,multi_worker_mirrored"
    )(sweep)


def sweep(
    jobfile: JobFileArgument = None,
    job_option: JobFileOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE,...",
            show_default=False,
            help="A key of the job file and its values. May be repeated: all combinations are run.",
        ),
    ] = None,
    inventory: InventoryOption = None,
    env: EnvOption = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="The file of results. Default: NAME-sweep.json."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and what is done; start nothing.")] = False,
    code_limit: CodeLimitOption = 50,
    output: FormatOption = ReportFormat.text,
    plot: PlotOption = None,
) -> int:
    """Run a job file with several settings, and compare the runs.

    The runs are started one after the other. Each is a job with a name and an output directory of its own.
    The results are kept in a file. After Ctrl-C or a failure, the same command continues: runs that have succeeded are
    not repeated.

    Exit code: 0 all runs have results, 100 some have none, 4 it is unknown whether a run has ended, 5 a job that this
    sweep has not started is running under the name of a run.
    """
    from tfctl.model import load, variables
    from tfctl.report import plot as plots
    from tfctl.report import sweep_variants
    from tfctl.report.figures import compare

    file = named(jobfile, job_option, "job file")
    if plot is not None:
        plots.require(plot)
    values = sweep_variants.parse(settings or [])
    path = results or Path(f"{load.load(file).name}-sweep.json")
    outside = variables.external(env or (), os.environ).given
    digest = sweep_variants.digest(file, [f"{name}={value}" for name, value in outside.items()])
    with nullcontext() if dry_run else _locked(path):
        known = _known(path, digest)
        variants = sweep_variants.variants(file, values, {entry.job: entry.settings for entry in known.runs})
        layouts = [lay_out(file, inventory, env, variant.job) for variant in variants]
        if dry_run:
            _print_plan(variants, layouts, known, output)
            return 0
        for number, (variant, layout) in enumerate(zip(variants, layouts, strict=True), 1):
            say(f"run {number} of {len(variants)}: {_settings(variant.settings)}")
            known = _ended(variant, layout, code_limit, known, path)
    found = known.only([variant.name for variant in variants])
    missing = counted(len(variants) - len(found), "run has", "runs have")
    failure = _NoResult(f"{missing} no result", "the same command continues, and keeps the results of the others")
    if not found:
        raise failure
    show(compare(found), output, plot)
    if len(found) == len(variants):
        return Exit.OK
    say_error(failure)
    return failure.exit


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other sweeps of this user from writing to this file of results. Raise Busy if one does."""
    from hashlib import sha256

    from platformdirs import user_cache_path

    lock = user_cache_path("tfctl") / "sweeps" / sha256(bytes(path.absolute())).hexdigest()[:32]
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            remedy = "wait for its end, or name another file with --results"
            raise Busy(f"another sweep writes to {path}", remedy) from None
        yield


def _known(path: Path, digest: str) -> SweepResults:
    """Return the results so far. Raise UsageError if they are those of another job file or other variables."""
    from tfctl.report.sweep_file import SweepResults, load

    if not path.exists():
        return SweepResults(digest)
    found = load(path)
    if found.jobfile != digest:
        raise UsageError(
            f"{path} contains results for a different job file or different variables (-e), or the job file has "
            "changed since",
            f"delete {path} and the output directories of its runs, or change `name:` in the job file (and the file of "
            "--results, if you use it)",
        )
    return found


def _ended(variant: Variant, layout: Layout, code_limit: int, known: SweepResults, path: Path) -> SweepResults:
    """Start a run, or continue with the one that an earlier call has started, and wait for its end. Return the results
    with its own. A run that cannot be started is reported, and the next one begins. Raise Unreachable if it is unknown
    whether the run has ended, and Busy if another job of its name runs: the next one could slow it down."""
    from tfctl.remote.fleet import Fleet
    from tfctl.report.sweep_file import SweepRun, save

    entry = known.find(variant.name) or SweepRun(variant.name, variant.settings)
    if entry.figures:
        say(f"{variant.name}: already succeeded")
        return known
    if entry.run:
        with Fleet(layout.hosts) as fleet:
            state = _started_before(fleet, entry)
            if state is not None:
                return _waited(fleet, entry, state.attempt, known, path, running_tasks(state))

    def note(job: Job) -> None:
        nonlocal entry, known
        entry = replace(entry, run=job.run)
        known = known.put(entry)
        save(path, known)

    with ExitStack() as stack:
        try:
            ready = stack.enter_context(packed(layout, code_limit))
            job = ready.start(note)  # noted first: after an interruption of the start, the job may run
        except TfctlError as error:
            if isinstance(error, Busy) and _runs(layout):
                remedy = f"wait for its end with `tfctl wait {entry.job}`, then run the same command again"
                raise Busy(error.message, remedy) from None
            say_error(error)
            return known
        return _waited(ready.fleet, entry, job.attempt, known, path, [task.name for task in job.tasks])


def _started_before(fleet: Fleet, entry: SweepRun) -> JobState | None:
    """Return the state of the attempt that an earlier call has started, if it runs or has succeeded."""
    from tfctl.jobs import show

    try:
        state, _ = show.one(fleet, entry.job)
    except NotFound:
        return None
    guard = state.record.guard
    ours = entry.run in (state.record.run, guard.origin if guard else "")
    return state if ours and (not state.over or state.state == "succeeded") else None


def _runs(layout: Layout) -> bool:
    """Return whether the job runs on any host of its inventory. Silent hosts have been reported."""
    from tfctl.jobs import show
    from tfctl.remote.fleet import Fleet

    with Fleet((*layout.hosts, *layout.others)) as fleet:
        found, _ = show.jobs(fleet, layout.name)
    return any(each.alive or not each.over for each in found)


def _waited(
    fleet: Fleet, entry: SweepRun, attempt: int, known: SweepResults, path: Path, alive: Collection[TaskName]
) -> SweepResults:
    from tfctl.jobs.wait import Deleted, wait
    from tfctl.report.read import read
    from tfctl.report.sweep_file import save

    seen: deque[JobState] = deque(maxlen=1)
    try:
        with detaching(entry.job), reporting_the_outcome(seen):
            ended = wait(fleet, entry.job, attempt, say, watch=seen.append, alive=alive)
            if not ended.over:
                raise Unreachable(sentence(ended), "when its hosts answer again, the same command continues")
    except Deleted as error:
        say_error(error)
        return known
    say(sentence(ended))
    if ended.state != "succeeded":
        say(f"`tfctl logs {entry.job}` shows why")
        return known
    errors: list[TfctlError] = []
    try:
        [figures] = read(fleet, [entry.job], errors.append)
    except TfctlError as error:
        say_error(error)
        return known
    for missing in errors:
        say_error(missing)
    if any(isinstance(missing, Unreachable) for missing in errors):
        say(f"the figures of {entry.job} are incomplete; the same command reads them again")
        return known
    known = known.put(replace(entry, figures=replace(figures, settings=entry.settings)))
    save(path, known)
    return known


def _print_plan(
    variants: Sequence[Variant], layouts: Sequence[Layout], known: SweepResults, output: ReportFormat
) -> None:
    """Print the runs, and which of them have succeeded."""
    done = [entry.job for entry in known.runs if entry.figures]
    runs: list[PlannedRunObject] = [
        {
            "job": variant.name,
            "settings": dict(variant.settings),
            "tasks": len(layout.slots),
            "hosts": len(layout.hosts),
            "output": layout.output,
            "done": variant.name in done,
        }
        for variant, layout in zip(variants, layouts, strict=True)
    ]
    if output is ReportFormat.json:
        planned: SweepObject = {"runs": runs}
        text.print_json(planned)
        return
    text.show(_PLAN.render(runs, output is ReportFormat.wide))


def _settings(settings: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())


_PLAN: Table[PlannedRunObject] = Table(
    Column("JOB", lambda run: run["job"]),
    Column("SETTINGS", lambda run: _settings(run["settings"]), rank=1),
    Column("TASKS", lambda run: str(run["tasks"]), rank=2),
    Column("HOSTS", lambda run: str(run["hosts"]), rank=3),
    Column("OUTPUT", lambda run: str(run["output"]), rank=4),
    Column("DONE", lambda run: "yes" if run["done"] else ""),
)
