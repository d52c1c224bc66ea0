"""tfctl wait: wait until a job has ended, then stop what still runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli.common import InventoryOption, JobArgument, JobOption, find_job, say
from tfctl.cli.text import lasted
from tfctl.errors import Exit, Unreachable, UsageError

if TYPE_CHECKING:
    from tfctl.jobs.state import JobState
    from tfctl.remote.fleet import Fleet

_CODES = {"succeeded": Exit.OK, "failed": Exit.JOB_FAILED, "lost": Exit.JOB_FAILED, "stopped": Exit.JOB_STOPPED}


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl wait digits-ps --timeout 2h && echo done")(wait)


def wait(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", show_default=False, help="Wait at most this long.")
    ] = None,
) -> int:
    """Wait until a job has ended, then stop what still runs. That is mostly parameter servers.

    Exit code: 0 it succeeded, 100 it failed, 101 it still runs after --timeout, 103 it was stopped, 4 no host answers.
    """
    from tfctl.jobs import show
    from tfctl.remote.fleet import Fleet

    longest = limit(timeout, waits=True)
    found, name = find_job(job, job_option, inventory)
    with Fleet(found.hosts) as fleet:
        state, _ = show.one(fleet, name)
        if name is None:
            say(f"job: {state.job}")
        fleet.narrow(state.hosts)
        with detaching(state.job):
            return until_ended(fleet, state.job, state.attempt, longest)


def until_ended(fleet: Fleet, job: str, attempt: int, timeout: float | None, follow: bool = False) -> int:
    """Wait, printing logs if ``follow``; report how the job ended and return the exit code."""
    from tfctl.jobs.wait import wait

    ended = _followed(fleet, job, attempt, timeout) if follow else wait(fleet, job, attempt, say, timeout)
    say(sentence(ended))
    return exit_code(ended)


@contextmanager
def detaching(job: str) -> Iterator[None]:
    """Tell the user that the job goes on if waiting breaks off: by Ctrl-C, a closed pipe or unreachable hosts."""
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError, Unreachable):
        say(f"{job} goes on, but nobody cleans up after it: `tfctl wait {job}` does, `tfctl stop {job}` ends it")
        raise


def exit_code(state: JobState) -> Exit:
    """Return the exit code of a command that waits for a job."""
    return _CODES.get(state.state, Exit.NOT_ENDED)


def _followed(fleet: Fleet, job: str, attempt: int, timeout: float | None) -> JobState:
    """Print the logs on stdout while waiting in a thread. Return when the wait ends."""
    from tfctl.cli.logs import Printer
    from tfctl.jobs import show
    from tfctl.jobs.logs import Query, follow
    from tfctl.jobs.wait import wait

    over = threading.Event()
    ended: list[JobState | BaseException] = []

    def waiting() -> None:
        try:
            ended.append(wait(fleet, job, attempt, say, timeout))
        except BaseException as error:
            ended.append(error)
        over.set()

    state, _ = show.one(fleet, job)
    threading.Thread(target=waiting, daemon=True).start()
    printer = Printer(state)
    for lines in follow(fleet, state, Query(), over, say):
        printer(lines)
    over.wait()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


def sentence(state: JobState) -> str:
    """Return a job's state as a sentence."""
    if not state.ended:
        return f"{state.job} is {state.state}" + (f": {state.reason}" if state.reason else "")
    after = f" after {lasted(state.record['started'], state.finished)}" if state.finished else ""
    return f"{state.job} {state.state}{after}" + (f": {state.reason}" if state.reason else "")


def limit(timeout: str | None, waits: bool) -> float | None:
    """Return ``--timeout`` in seconds; 0 looks once. Raise UsageError (2), also if the command never waits."""
    if timeout is not None and not waits:
        raise UsageError("--timeout limits waiting, but nothing waits", "add --wait or --follow")
    return 0.0 if timeout in ("0", "0s") else seconds(timeout)


def seconds(word: str | None, option: str = "--timeout") -> float | None:
    """Parse a duration from the command line. Raise UsageError (2)."""
    from tfctl.model.text import seconds as parse

    try:
        return None if word is None else parse(int(word) if word.isdecimal() else word)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
