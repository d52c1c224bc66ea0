"""What tasks print: the view "Logs". Lines are sent as the tasks have printed them; the page shows them as text."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from tfctl.errors import NotFound, TfctlError, UsageError
from tfctl.jobs import logs
from tfctl.jobs.attempts import Watch
from tfctl.jobs.journal import Gap, Item, Line, Query
from tfctl.jobs.search import Search
from tfctl.node import names
from tfctl.ui.objects import problems
from tfctl.ui.streams import Gone, Pipe
from tfctl.wording import plain, printed, rfc3339_ms

if TYPE_CHECKING:
    from tfctl.jobs.state import JobState
    from tfctl.node.wire import TaskName
    from tfctl.remote.fleet import Fleet

#: Lines in a message, and characters of a line that the page gets. A download has the whole line.
_BATCH, _LONGEST = 2000, 16384
#: Matches of a search that the page gets, beside the first of each host: in these is the first of all. All are counted.
_MATCHES = 5000
#: Of the last lines that are wanted, each host sends at least so many, and all hosts so many times that number: some
#: print more than others.
_SHARE, _SHARES = 50, 2
#: Streams that may be open at once, because sshd accepts ten sessions on a connection; how long (s) to wait for one.
_STREAMS, _TURN_S = 5, 3.0
#: What the line with which an error begins looks like.
FIRST_ERROR = (
    r"^Traceback \(most recent call last\)|^\S*(Error|Exception)\b|\b(FATAL|CRITICAL)\b|^F\d{4} |[Ss]egmentation fault|"
    r"core dumped|[Oo]ut of memory|CUDA_ERROR|No space left on device|command not found"
)

_free = threading.BoundedSemaphore(_STREAMS)


def tasks_of(state: JobState, words: Sequence[str]) -> tuple[TaskName, ...] | None:
    """Return the tasks with these names, such as worker/3, or None for no words. Raise NotFound if the job has none."""
    if not words:
        return None
    wanted = set(words)
    found = tuple(task.name for task in state.tasks if str(task) in wanted)
    if not found:
        raise NotFound(f"{state.job} has no such task", "choose another one")
    return found


def follow(fleet: Fleet, state: JobState, tasks: tuple[TaskName, ...] | None, pipe: Pipe, *, tail: int) -> None:
    """Send about ``tail`` of the last lines and then each new one, also of the attempts that the job's guard starts."""

    def fail(error: TfctlError) -> None:
        with suppress(Gone):
            pipe.send("problem", problems([error])[0])

    def say(text: str) -> None:
        with suppress(Gone):
            pipe.send("note", plain(text.removeprefix("~~ ")))

    hosts = len({task.host for task in state.tasks if tasks is None or task.name in tasks})
    query = Query(tasks, share=max(min(tail, _SHARE), math.ceil(_SHARES * tail / max(1, hosts))))
    with _turn():
        if state.over:
            _send(pipe, logs.read(fleet, state, query, fail))
        else:
            answers = logs.answers_of(fleet, state, query)
            watch = Watch(fleet, state, answers)
            pipe.at_close = watch.end
            for batch in logs.follow_attempts(fleet, watch.attempts, query, say, answers, fail):
                _send(pipe, batch)
            if watch.error is not None:
                raise watch.error
    pipe.send("end", {"over": True})


def around(
    fleet: Fleet,
    state: JobState,
    tasks: tuple[TaskName, ...] | None,
    pipe: Pipe,
    *,
    time: float,
    before: int,
    after: int,
) -> None:
    """Send the lines just before and just after a time (epoch s), one of which may be left out."""

    def fail(error: TfctlError) -> None:
        pipe.send("problem", problems([error])[0])

    if before:
        _send(pipe, logs.read(fleet, state, Query(tasks, until=time, tail=before), fail))
    if after:
        later = logs.read(fleet, state, Query(tasks, since=time), fail)
        _send(pipe, itertools.islice(later, after))
    pipe.send("end", {})


def search(
    fleet: Fleet, state: JobState, tasks: tuple[TaskName, ...] | None, pipe: Pipe, *, pattern: re.Pattern[str]
) -> None:
    """Send the lines that match as hosts find them, the number of matches by task, and when each host is done."""
    lock, left = threading.Lock(), threading.Semaphore(0)
    counts: Counter[str] = Counter()
    shown: Counter[str] = Counter()  # by host

    def found(items: Sequence[Item]) -> None:
        lines = [each for each in items if isinstance(each, Line)]
        with lock, suppress(Gone):
            host = lines[0].host if lines else ""
            room = max(_MATCHES - shown.total(), _MATCHES // len(state.hosts) - shown[host], 0)
            counts.update(names.task(each.role, each.index) for each in lines)
            shown[host] += len(lines[:room])
            _send(pipe, lines[:room])
            pipe.send("counts", counts)

    def done(_host: str, error: TfctlError | None) -> None:
        with suppress(Gone):
            if error is not None and not pipe.over.is_set():
                pipe.send("problem", problems([error])[0])
        left.release()

    with _turn():
        running = Search(fleet, state, Query(tasks, grep=pattern), found, done)
        pipe.at_close = lambda: threading.Thread(target=running.cancel, daemon=True).start()
        for _ in range(running.hosts):
            while not left.acquire(timeout=1.0):
                if pipe.over.is_set():
                    return
    pipe.send("end", {"counts": counts, "total": counts.total(), "shown": shown.total()})


def download(fleet: Fleet, state: JobState, tasks: tuple[TaskName, ...] | None, pipe: Pipe) -> None:
    """Write all lines as text, each with its time and task, as `tfctl logs --timestamps` prints them."""

    def fail(error: TfctlError) -> None:
        pipe.write(f"~~ {plain(error.message)}\n".encode())

    pieces: list[str] = []
    with _turn():
        for found in logs.read(fleet, state, Query(tasks), fail):
            pieces.append(_text(found))
            if len(pieces) >= _BATCH:
                pipe.write("".join(pieces).encode())
                pieces.clear()
    pipe.write("".join(pieces).encode())


def _text(found: Item) -> str:
    when = rfc3339_ms(found.time)
    if isinstance(found, Gap):
        return f"{when} ~~ {found.host}: lines are missing here ({found.cause})\n"
    name = names.task(found.role, found.index)
    return "".join(f"{when} {name} │ {line}\n" for line in printed(found.text))


def item(found: Item) -> object:
    """Return what the page gets of a line: its time, task, host and text and, if it is cut, its length; or of a gap."""
    if isinstance(found, Line):
        task = names.task(found.role, found.index)
        cut = [len(found.text)] if len(found.text) > _LONGEST else []
        return [found.time, task, found.host, found.text[:_LONGEST], *cut]
    return {**asdict(found), "tasks": [names.task(*task) for task in found.tasks]}


def _send(pipe: Pipe, items: Iterable[Item]) -> None:
    """Send lines and gaps, so many at a time."""
    rest = iter(items)
    while some := [item(each) for each in itertools.islice(rest, _BATCH)]:
        pipe.send("lines", some)


@contextmanager
def _turn() -> Iterator[None]:
    """Take the right to open a stream. Raise UsageError if too many are open."""
    if not _free.acquire(timeout=_TURN_S):
        raise UsageError("too many logs are open at once", "close other tabs of this page, or wait a moment")
    try:
        yield
    finally:
        _free.release()
