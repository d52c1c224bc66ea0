"""tfctl wait: wait until a job has ended, and report how."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli.common import InventoryOption, JobArgument, JobOption, OutputFormat, OutputOption, say
from tfctl.cli.live_line import LiveLine
from tfctl.cli.text import lasted, print_json
from tfctl.cli.times import limit, seconds
from tfctl.cli.which import open_job
from tfctl.errors import Exit, TfctlError, Unreachable
from tfctl.wording import Lines, counted, printed

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tfctl.cli.objects import EndedJobObject
    from tfctl.jobs.attempts import Attempts
    from tfctl.jobs.state import JobState, TaskState
    from tfctl.node.wire import JobStateName, TaskName
    from tfctl.remote.fleet import Fleet

_CODES: dict[JobStateName, Exit] = {"succeeded": Exit.OK, "failed": Exit.JOB_FAILED, "stopped": Exit.JOB_STOPPED}

#: The width of the bar, and how often (s) a line says how far a job is where there is no terminal.
_BAR, _EVERY_S = 20, 60.0
#: The lines of the task that made a job fail which are printed.
_LAST_LINES = 10
#: How long (s) the end of a wait may be delayed by a journald that is slow to write the last lines.
_JOURNAL_TIMEOUT_S = 5.0
#: How long (s) it may be delayed by a host that does not deliver them, for example from a damaged disk.
_SILENCE_S = 15.0


class _SilentAfterEnd(Unreachable):
    """No host of a job answers any more, but the job has ended before."""


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl wait digits-ps --timeout 2h && echo done")(wait)


def wait(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", show_default=False, help="Wait at most this long.")
    ] = None,
    host_timeout: Annotated[
        str, typer.Option("--host-timeout", metavar="DURATION", help="Give up on a host that is silent for this long.")
    ] = "15m",
    output: OutputOption = OutputFormat.text,
) -> int:
    """Wait until a job has ended. The job's guards (one small process per host) then stop tasks that are
    still running, such as parameter servers.

    If the job has failed, the last lines of the task that made it fail are printed on stderr, with the cause and the
    remedy. With -o json, stdout gets the job as `tfctl status` prints it, with last_lines.

    Exit code: 0 it succeeded, 100 it failed, 101 it still runs after --timeout, or a
    host was silent for --host-timeout, 103 it was stopped, 4 no host answers.
    """
    longest, silent = limit(timeout, waits=True), seconds(host_timeout, "--host-timeout")
    with open_job(job, job_option, inventory) as opened, detaching(opened.state.job):
        state, as_json = opened.state, output is OutputFormat.json
        return until_ended(
            opened.fleet, state.job, state.attempt, longest,
            host_timeout=silent, as_json=as_json, alive=running_tasks(state),
        )  # fmt: skip


def running_tasks(state: JobState) -> list[TaskName]:
    return [task.name for task in state.tasks if task.alive]


def until_ended(
    fleet: Fleet,
    job: str,
    attempt: int,
    timeout: float | None,
    follow: bool = False,
    host_timeout: float | None = None,
    as_json: bool = False,
    alive: Collection[TaskName] = (),
) -> int:
    """Wait, printing logs if ``follow``; report how the job ended and return the exit code.

    Without ``follow``, print the last lines of the task that made the job fail, on stderr, or as a field of the job's
    object on stdout if ``as_json``. ``alive``: the tasks that ran before the call.
    """
    from tfctl.jobs.wait import HOST_TIMEOUT_S, wait

    seen: deque[JobState] = deque(maxlen=1)
    with reporting_the_outcome(seen), ProgressLine() as line:
        if follow:
            ended = _followed(fleet, job, attempt, timeout, seen, alive)
        else:
            silent = HOST_TIMEOUT_S if host_timeout is None else host_timeout

            def watch(state: JobState) -> None:
                seen.append(state)
                line.take(state)

            ended = wait(fleet, job, attempt, line.say, timeout, silent, watch=watch, alive=alive)
            line.clear()
        culprit = ended.culprit
        lines = None if culprit is None else _last_lines(fleet, ended, culprit)
        ended = ended.with_last_lines(lines or ())
    from tfctl.cli.tables import explained, job_json

    if as_json:
        shown: EndedJobObject = {**job_json(ended), "last_lines": lines}
        print_json(shown)
    elif lines and culprit and not follow:
        last = [line for text in lines for line in printed(text)][-_LAST_LINES:]
        heading = f"the last {counted(len(last), 'line')} of {culprit} on {culprit.host}:"
        say(Lines(heading, *(f"  {line}" for line in last)))
    say(sentence(ended) if as_json else explained(ended, sentence(ended)))
    return exit_code(ended)


class ProgressLine(LiveLine):
    """Shows how far a job is: a bar on a terminal, a line a minute elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._said = time.monotonic()

    def take(self, state: JobState) -> None:
        """Show the progress of a job, if anything is known."""
        from tfctl.cli.tables import progress_text

        progress = state.progress
        if progress is None or state.ended:
            self.clear()
            return
        known = progress_text(progress)
        if self.visible:
            filled = round(_BAR * (progress.percent or 0.0) / 100)
            self.show(f"[{'=' * filled}{' ' * (_BAR - filled)}] {known}" if progress.percent is not None else known)
        elif time.monotonic() - self._said >= _EVERY_S:
            self._said = time.monotonic()
            say(f"{state.job}: {known}")


@contextmanager
def detaching(job: str) -> Iterator[None]:
    """Print that the job keeps running if Ctrl-C, unreachable hosts, or the end of who reads its logs interrupt the
    wait. In the last case, leave with the exit code for a job that has not ended."""
    try:
        yield
    except _SilentAfterEnd:
        raise
    except (KeyboardInterrupt, BrokenPipeError, Unreachable) as error:
        say(f"{job} keeps running. To wait for its end, run `tfctl wait {job}`; to stop it, run `tfctl stop {job}`")
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(Exit.NOT_ENDED) from None
        raise


@contextmanager
def reporting_the_outcome(seen: deque[JobState]) -> Iterator[None]:
    """Print how the job has ended if Ctrl-C or unreachable hosts interrupt what follows its end, such as cleaning up.
    `detaching` around it then prints nothing. ``seen``: the last state of the job that was seen, or nothing."""
    try:
        yield
    except (KeyboardInterrupt, Unreachable) as error:
        if not seen or not seen[-1].over:
            raise
        say(sentence(seen[-1]))
        if isinstance(error, Unreachable):
            raise _SilentAfterEnd(error.message, error.remedy) from None
        raise typer.Abort from None


def exit_code(state: JobState) -> Exit:
    """Return the exit code of a command that waits for a job."""
    return _CODES.get(state.state, Exit.NOT_ENDED) if state.over else Exit.NOT_ENDED


def _followed(
    fleet: Fleet, job: str, attempt: int, timeout: float | None, seen: deque[JobState], alive: Collection[TaskName]
) -> JobState:
    """Print the logs on stdout while waiting in a thread. Return when the wait ends. ``seen`` gets each state. Raise
    BrokenPipeError if nobody reads the logs any more and the job has not ended. ``alive``: as in `until_ended`."""
    from tfctl.cli.lines import Printer
    from tfctl.jobs import show
    from tfctl.jobs.attempts import Attempts
    from tfctl.jobs.journal import Query
    from tfctl.jobs.logs import answers_of, follow_attempts
    from tfctl.jobs.wait import Silence, wait

    state, _ = show.one(fleet, job)
    query = Query()
    answers, attempts = answers_of(fleet, state, query), Attempts(state)
    watch = _reporting(attempts, seen)

    def wait_for_end() -> JobState:
        silence = Silence(lambda _: None)  # those who read the logs report silent hosts
        return wait(fleet, job, attempt, say, timeout, silence=silence, watch=watch, answers=answers, alive=alive)

    ended = _in_thread(wait_for_end, attempts.end)
    printer = Printer(state)
    try:
        for lines in follow_attempts(fleet, attempts, query, say, answers):
            printer(lines)
    except BrokenPipeError:
        if not (seen[-1] if seen else state).over:
            raise
    return ended.result()


def _reporting(attempts: Attempts, seen: deque[JobState]) -> Callable[[JobState], None]:
    """Return a function that reports failures, restarts and new attempts when it gets the next state of a job. It
    passes each state on to ``attempts`` and ``seen``."""
    from tfctl.jobs.failures import FailureReporter

    reporter = FailureReporter(say)

    def watch(state: JobState) -> None:
        seen.append(state)
        if attempts.note(state):
            reporter.begin(state.attempt)
        reporter.note(state)

    return watch


def _in_thread(work: Callable[[], JobState], after: Callable[[], object]) -> Future[JobState]:
    """Call ``work`` in a thread that does not keep the program from ending, and ``after`` when it has ended. Return
    its future result."""
    from concurrent.futures import Future

    result: Future[JobState] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)
        after()

    threading.Thread(target=run, daemon=True).start()
    return result


def _last_lines(fleet: Fleet, state: JobState, task: TaskState) -> list[str]:
    """Return the last ten lines that a task printed. Report on stderr if they cannot be read."""
    from tfctl.jobs.journal import Line, Query
    from tfctl.jobs.logs import read

    def fail(error: TfctlError) -> None:
        say(f"not all of the last lines of {task} can be shown: {error.message}")

    query = Query(tasks=(task.name,), tail=_LAST_LINES, patience=_JOURNAL_TIMEOUT_S, silence=_SILENCE_S)
    items = read(fleet, state, query, fail)
    return [item.text for item in items if isinstance(item, Line)]


def sentence(state: JobState) -> str:
    """Return a job's state as a sentence."""
    if not state.ended:
        return f"{state.job} is {state.state}" + (f": {state.reason}" if state.reason else "")
    after = f" after {lasted(state.record.started, state.finished)}" if state.finished else ""
    again = "" if state.over else "; its guard may start another attempt"
    return f"{state.job} {state.state}{after}" + (f": {state.reason}" if state.reason else "") + again
