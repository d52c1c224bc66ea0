"""tfctl prune: delete jobs that are over from the hosts."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, JobOption, TableFormat, TableOption, say, say_error
from tfctl.cli.tables import Column, Table
from tfctl.cli.times import seconds
from tfctl.cli.which import open_fleet
from tfctl.errors import TfctlError, UsageError, first_of
from tfctl.wording import counted, rfc3339

if TYPE_CHECKING:
    from tfctl.cli.objects import AttemptObject, CachedObject, PrunedCacheObject, PrunedObject
    from tfctl.jobs.prune import Attempt
    from tfctl.local.cached import Cached


#: How long (s) a run must not have used what --cache deletes.
_UNUSED_S = 30 * 86400.0


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: tfctl prune --older-than 14d --keep 20    tfctl prune digits-ps    tfctl prune --cache"
    )(prune)


def prune(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", show_default=False, help="A job's name or file. Default: all jobs."),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            show_default=False,
            help="Only attempts in which nothing has changed for this long.",
        ),
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=0, help="Keep the last N attempts that are over.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache",
            help="Delete what `tfctl run` has installed here and has not used for 30 days (or --older-than).",
        ),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="With --cache: also what was used recently.")] = False,
    output: TableOption = TableFormat.text,
) -> int:
    """Delete attempts that are over, with their code and records. With --cache, free space on this machine instead.

    Running jobs, output directories and logs stay. An attempt is one run of a job on all its hosts.
    Without a job's name, it asks first, and fails if there is no terminal, unless you pass --yes.
    """
    from tfctl.jobs import prune as jobs

    if cache:
        if job or job_option or keep:
            raise UsageError("--cache concerns this machine, not jobs", "omit the job and --keep")
        return prune_cache(-math.inf if every else seconds(older_than, "--older-than") or _UNUSED_S, dry_run, output)
    if every:
        raise UsageError("--all needs --cache", "to delete attempts of all jobs, omit --all and name no job")
    age = seconds(older_than, "--older-than")
    with open_fleet(job, job_option, inventory) as (fleet, name):
        found, errors = jobs.stored(fleet, name)
        chosen = jobs.choose(found, age, keep, bool(errors), say, name)
        if chosen and not dry_run and name is None and not yes:
            _require_consent(chosen)
        done = jobs.prune(fleet, [] if dry_run else chosen)
    errors += done.errors
    shown = chosen if dry_run else done.attempts
    if output is TableFormat.json:
        attempts = cast("list[AttemptObject]", ATTEMPTS.json(shown))
        pruned: PrunedObject = {"attempts": attempts, "dry_run": dry_run, "mib": None if dry_run else done.mib}
        text.print_json(pruned)
    elif shown:
        text.show(ATTEMPTS.render(shown, output is TableFormat.wide))
    for sentence in done.kept:
        say(f"kept: {sentence}")
    if not chosen:
        say("there is nothing to delete")
    elif dry_run:
        say(f"{_counted(shown)} would be deleted")
    elif not shown:
        say("nothing was deleted")
    else:
        say(f"deleted {_counted(shown)}" + ("" if done.mib is None else f", {_size(done.mib)}"))
    for error in errors:
        say_error(error)
    return first_of(error.exit for error in errors)


def prune_cache(age: float, dry_run: bool, output: TableFormat) -> int:
    """Delete what no local run has used for this time (s), and print it."""
    from tfctl.local import cached

    chosen = [each for each in cached.found() if time.time() - each.used >= age]
    kept: list[Cached] = []
    left: list[Cached] = []
    errors: list[TfctlError] = []
    for each in [] if dry_run else chosen:
        try:
            if not cached.delete(each):
                kept.append(each)
        except TfctlError as failed:
            left.append(each)
            errors.append(failed)
    shown = [each for each in chosen if each not in (*kept, *left)]
    total = sum(each.mib for each in shown)
    if output is TableFormat.json:
        found: PrunedCacheObject = {
            "cache": cast("list[CachedObject]", CACHE.json(shown)), "dry_run": dry_run, "mib": total
        }  # fmt: skip
        text.print_json(found)
    elif shown:
        text.show(CACHE.render(shown, output is TableFormat.wide))
    for each in kept:
        say(f"kept: {each.name}, which a run is using")
    if not shown:
        say(
            f"there is nothing to delete in {cached.folder()}"
            + ("; --all deletes what was used recently" if age > 0 else "")
        )
    else:
        say(f"{_size(total)} would be deleted" if dry_run else f"deleted {_size(total)}")
    for error in errors:
        say_error(error)
    return first_of(error.exit for error in errors)


def _require_consent(chosen: list[Attempt]) -> None:
    """Ask whether these attempts may be deleted. Raise UsageError without a terminal, and if the answer is no."""
    what = f"{_counted(chosen)}{_total(chosen)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{what} would be deleted", "name a job, or add --yes; --dry-run shows them")
    if not typer.confirm(f"Delete {what}?", err=True):
        raise UsageError("nothing was deleted", "--dry-run shows what would be")


def _counted(attempts: list[Attempt] | tuple[Attempt, ...]) -> str:
    jobs = len({attempt.name.job for attempt in attempts})
    hosts = len({host for attempt in attempts for host in attempt.hosts})
    return f"{counted(len(attempts), 'attempt')} of {counted(jobs, 'job')} on {counted(hosts, 'host')}"


def _total(attempts: list[Attempt]) -> str:
    sizes = [attempt.mib for attempt in attempts if attempt.mib is not None]
    return f", {_size(sum(sizes))}" if len(sizes) == len(attempts) else ""


def _size(mib: int | None) -> str:
    return "" if mib is None else f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib} MiB"


CACHE: Table[Cached] = Table(
    Column("NAME", lambda each: each.name, path=lambda each: str(each.path)),
    Column("SIZE", lambda each: _size(each.mib), mib=lambda each: each.mib),
    Column("LAST USED", lambda each: text.clock(each.used), rank=1, used=lambda each: rfc3339(each.used)),
)
ATTEMPTS: Table[Attempt] = Table(
    Column("JOB", lambda attempt: attempt.name.job, job=lambda attempt: attempt.name.job),
    Column("ATTEMPT", lambda attempt: str(attempt.name.attempt), attempt=lambda attempt: attempt.name.attempt),
    Column("", str, run=lambda attempt: attempt.name.run),
    Column(
        "STARTED", lambda attempt: text.clock(attempt.started), rank=1,
        started=lambda attempt: rfc3339(attempt.started),
    ),
    Column("HOSTS", lambda attempt: str(len(attempt.hosts)), rank=2, hosts=lambda attempt: list(attempt.hosts)),
    Column("SIZE", lambda attempt: _size(attempt.mib), mib=lambda attempt: attempt.mib),
)  # fmt: skip
