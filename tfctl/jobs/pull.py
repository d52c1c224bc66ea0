"""Copy what a job has on its hosts to a directory of this machine. A pull that was interrupted is continued.

What another run has written there stays: names that it has taken are followed by the run (attempt-2-89abcdef).

DIR/output/                          its output; below the name of each host if the hosts do not share it
DIR/attempt-2/worker-3.log           what a task has printed
DIR/attempt-2/worker-3.service       its unit, without the values of variables
DIR/attempt-2/worker-3.tf_config.json
DIR/attempt-2/worker-3.timings.jsonl how fast the task has trained, if it uses tfctl_runtime
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from tfctl.errors import TfctlError
from tfctl.jobs import logs, show
from tfctl.jobs.destination import Destination, Part
from tfctl.jobs.journal import Line, Query
from tfctl.jobs.state import JobState, absent, jobs
from tfctl.node import names, wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import Session, beating, open_session
from tfctl.wording import counted, plain, plain_lines, printed

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection

Fail = Callable[[TfctlError], object]

#: Files that are asked for at once.
_BATCH = 2000
#: Bytes that stay free on this machine.
_SPARE = 50 * 1000**2


@dataclass(frozen=True)
class PullProgress:
    """How far a pull is. ``bytes`` and ``files`` are those received, of ``all_bytes`` and ``all_files`` to receive."""

    bytes: int
    all_bytes: int
    files: int
    all_files: int


@dataclass(frozen=True)
class Pulled:
    """The result of a pull: how many files and bytes of the output were received, and how many were there already."""

    files: int
    bytes: int
    kept: int


@dataclass(frozen=True)
class _Wanted:
    """A file to receive: its position in the host's listing, and its path in the destination."""

    position: int
    path: str
    file: wire.OutputFile


def attempts(fleet: Fleet, job: str, numbers: Iterable[int]) -> Iterator[JobState]:
    """Yield these attempts of a job with their timings, as far as the hosts know them."""
    for number in numbers:
        answers, _ = show.ask(fleet, wire.ShowRequest(job, number, timings=True), wire.Shown)
        yield from jobs({host: answer and answer.jobs for host, answer in answers.items()})


def pull_logs(
    fleet: Fleet, state: JobState, destination: Destination, say: Callable[[str], object], fail: Fail
) -> None:
    """Write what each task of an attempt has printed, as `tfctl logs` shows it. ``fail`` is called for each host that
    fails. Lines that are not whole are reported through ``say``.

    A file that an earlier pull wrote is kept if the journal has lost the beginning of what is in it.
    """
    lost: set[wire.TaskName] = set()
    cut: Counter[wire.TaskName] = Counter()
    failed: set[str] = set()
    folder = destination.named(f"attempt-{state.attempt}", state.run)

    def failing(error: TfctlError) -> None:
        failed.update(error.hosts)
        fail(error)

    with ExitStack() as stack:
        parts: dict[wire.TaskName, Part] = {}
        sizes: dict[wire.TaskName, int] = {}
        for task in state.tasks:
            path = _of_task(folder, task.name, "log")
            parts[task.name], sizes[task.name] = stack.enter_context(destination.part(path)), destination.size(path)
        for item in logs.read(fleet, state, Query(), failing):
            if isinstance(item, Line):
                if (part := parts.get((item.role, item.index))) is not None:
                    data = "".join(f"{line}\n" for line in printed(item.text)).encode()
                    part.write(data)
                    sizes[item.role, item.index] -= len(data)
            elif item.cause == "rotated":
                lost.update(item.tasks)
            elif item.cause == "cut":
                cut.update(item.tasks)
        for task in state.tasks:
            shorter = sizes[task.name] > 0 and (task.name in lost or task.host in failed)
            with _reported(fail):
                (parts[task.name].discard if shorter else parts[task.name].complete)()
    for name, number in cut.items():
        say(f"{_of_task(folder, name, 'log')} has only the beginning of {counted(number, 'long line')}")


def write_timings(state: JobState, destination: Destination, fail: Fail) -> None:
    """Write what tfctl_runtime has recorded in each task of an attempt. ``fail`` is called for each fault."""
    folder = destination.named(f"attempt-{state.attempt}", state.run)
    for task in state.tasks:
        if task.status.timings is not None:
            with _reported(fail):
                destination.write(_of_task(folder, task.name, "timings.jsonl"), task.status.timings)


def pull_files(
    fleet: Fleet,
    state: JobState,
    destination: Destination,
    output: str,
    progress: Callable[[PullProgress], object],
    fail: Fail,
) -> Pulled:
    """Write each task's unit and TF_CONFIG, and the files of the output into ``output``. ``fail`` is called for each
    fault.

    A file that is there with the same size and time is not read again.
    """
    sessions: dict[str, Session] = {}
    try:
        with beating(sessions):
            listings = _listings(fleet, state, destination, fail, sessions)
            wanted, links, kept = _select(state, listings, destination, output, fail)
            counter = _Counter(wanted, progress)
            _require_space(destination, counter.now.all_bytes)
            _fetch_all(fleet, wanted, destination, fail, sessions, counter)
            _make_links(links, destination, fail)
            return Pulled(counter.now.files, counter.now.bytes, kept)
    finally:
        for session in list(sessions.values()):
            session.close()


def _listings(
    fleet: Fleet, state: JobState, destination: Destination, fail: Fail, sessions: dict[str, Session]
) -> dict[str, list[wire.OutputFile]]:
    """Open a session with each host of the job, write what it sends about its tasks, and return the files of its
    output. If the hosts share the output, one of those that answer sends it."""
    answering = [task.host for task in state.tasks if task.state != "unknown"]
    source = answering[0] if state.record.shared and answering else None
    folder = destination.named(f"attempt-{state.attempt}", state.run)

    def ask(connection: Connection) -> list[wire.OutputFile]:
        host = connection.host.name
        request = wire.PullRequest(state.job, state.attempt, source in (None, host), state.run)
        sessions[host] = session = open_session(connection, request)
        _write_files_of_tasks(session, destination, folder, fail)
        return _listing(session, fail)

    for missing in absent(state, fleet.hosts):
        fail(missing)
    listings: dict[str, list[wire.OutputFile]] = {}
    for asked in fleet.map(ask, [host for host in fleet.hosts if host.name in state.hosts]):
        if asked.error is not None:
            fail(asked.error)
        else:
            listings[asked.host.name] = asked.get()
    return listings


def _write_files_of_tasks(session: Session, destination: Destination, folder: str, fail: Fail) -> None:
    for task in session.expect(wire.Files, wire.SILENCE_S).tasks:
        with _reported(fail):
            destination.write(_of_task(folder, task.name, "service"), plain_lines(task.unit))
            if task.tf_config is not None:
                destination.write(_of_task(folder, task.name, "tf_config.json"), plain_lines(task.tf_config) + "\n")


def _listing(session: Session, fail: Fail) -> list[wire.OutputFile]:
    """Receive the list of a host's files. ``fail`` is called for each that the host leaves out."""
    listed: list[wire.OutputFile] = []
    last = False
    while not last:
        part = session.expect(wire.Listing, wire.SILENCE_S)
        listed += part.files
        last = part.last
        for what in part.skipped:
            fail(TfctlError(f"{session.host}: {plain(what)}; it was left out"))
    return listed


def _select(
    state: JobState,
    listings: Mapping[str, Sequence[wire.OutputFile]],
    destination: Destination,
    output: str,
    fail: Fail,
) -> tuple[dict[str, list[_Wanted]], list[tuple[str, str]], int]:
    """Return the files that each host is to send, the links to make, and how many files are there already.

    Hosts that share the output list the same files. A file with the same path, size and time, to the nanosecond, as
    that of an earlier host is the same file.
    """
    together = state.record.shared or len(state.hosts) == 1
    seen: set[wire.OutputFile] = set()
    wanted: dict[str, list[_Wanted]] = {}
    links: list[tuple[str, str]] = []
    kept = 0
    for host, listed in listings.items():
        folder = output if together else f"{output}/{host}"
        for position, file in enumerate(listed):
            if file in seen and (together or file.nanoseconds):
                continue
            seen.add(file)
            path = f"{folder}/{file.path}"
            try:
                there = destination.has(path, _plausible(file).size, file.mtime_ns)
            except TfctlError as error:
                fail(TfctlError(f"{host}: {error.message}", error.remedy))
                continue
            if file.link is not None:
                links.append((path, file.link))
            elif there:
                kept += 1
            else:
                wanted.setdefault(host, []).append(_Wanted(position, path, file))
    return wanted, links, kept


def _plausible(file: wire.OutputFile) -> wire.OutputFile:
    """Return the file. Raise TfctlError for numbers that no file has."""
    if file.size < 0 or not 0 <= file.nanoseconds < 10**9 or abs(file.seconds) > 10**11:
        raise TfctlError(f"{file.path!r:.200} was left out: its size or modification time is invalid")
    return file


def _fetch_all(
    fleet: Fleet,
    wanted: Mapping[str, Sequence[_Wanted]],
    destination: Destination,
    fail: Fail,
    sessions: Mapping[str, Session],
    counter: _Counter,
) -> None:
    """Receive the wanted files from all hosts at once."""

    def fetch(connection: Connection) -> None:
        name = connection.host.name
        for fault in _fetch(sessions[name], wanted[name], destination, counter):
            fail(TfctlError(f"{name}: {plain(fault.message)}", fault.remedy))

    for fetched in fleet.map(fetch, [host for host in fleet.hosts if host.name in wanted]):
        if fetched.error is not None:
            fail(fetched.error)


def _fetch(
    session: Session, wanted: Sequence[_Wanted], destination: Destination, counter: _Counter
) -> Iterator[TfctlError]:
    """Receive the files of one host. Yield an error for each that could not be received."""
    for batch in _batches(wanted):
        offsets = {}
        for one in batch:
            with destination.part(one.path, one.file.size, one.file.mtime_ns) as part:
                offsets[one.position] = part.offset
        session.send(wire.Fetch(tuple(offsets.items())))
        for one in batch:
            with destination.part(one.path, one.file.size, one.file.mtime_ns) as part:
                counter.add(size=part.offset)
                if fault := _receive(session, one, part, counter):
                    yield TfctlError(f"{one.file.path}: {fault}")
                    continue
                try:
                    part.complete()
                except TfctlError as error:
                    yield error
                else:
                    counter.add(files=1)


def _receive(session: Session, one: _Wanted, part: Part, counter: _Counter) -> str | None:
    """Receive one file. Return why it is not complete, or None."""
    left = one.file.size - part.offset
    while True:
        message = session.expect((wire.Piece, wire.Ended), wire.SILENCE_S)
        if message.position != one.position:
            raise TfctlError(
                f"{session.host}: tfctl-node sent another file instead of {plain(one.file.path)!r}", "try again"
            )
        if isinstance(message, wire.Ended):
            return message.fault or ("the file is incomplete" if left else None)
        if not 0 <= message.size <= left:
            raise TfctlError(f"{session.host}: tfctl-node sent more data for {plain(one.file.path)!r} than its size")
        left -= message.size
        for data in session.payload(message.size, wire.SILENCE_S):
            part.write(data)
            counter.add(size=len(data))


def _make_links(links: Iterable[tuple[str, str]], destination: Destination, fail: Fail) -> None:
    """Make symbolic links from their paths and targets. ``fail`` is called for each that cannot be made."""
    for path, target in links:
        with _reported(fail):
            destination.link(path, target)


class _Counter:
    """Counts what has been received from all hosts, and reports it. Thread-safe."""

    def __init__(self, wanted: Mapping[str, Iterable[_Wanted]], report: Callable[[PullProgress], object]) -> None:
        sizes = [one.file.size for files in wanted.values() for one in files]
        self.now = PullProgress(0, sum(sizes), 0, len(sizes))
        self._report = report
        self._lock = threading.Lock()

    def add(self, size: int = 0, files: int = 0) -> None:
        with self._lock:
            now = self.now
            self.now = PullProgress(now.bytes + size, now.all_bytes, now.files + files, now.all_files)
            self._report(self.now)


def _require_space(destination: Destination, size: int) -> None:
    free = destination.free()
    if size and free < size + _SPARE:
        raise TfctlError(
            f"the output needs {size / 1000**2:,.0f} MB, and {destination.path} has {free / 1000**2:,.0f} MB free",
            "name a directory with more room",
        )


def _of_task(folder: str, task: wire.TaskName, suffix: str) -> str:
    return f"{folder}/{names.task_key(*task)}.{suffix}"


@contextmanager
def _reported(fail: Fail) -> Iterator[None]:
    """Pass an error that is raised in the block to ``fail``, and go on."""
    try:
        yield
    except TfctlError as error:
        fail(error)


def _batches(wanted: Sequence[_Wanted]) -> Iterator[list[_Wanted]]:
    rest = iter(wanted)
    while batch := list(islice(rest, _BATCH)):
        yield batch
