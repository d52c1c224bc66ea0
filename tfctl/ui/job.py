"""One job: the views "Job", "Curves" and "More"."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from tfctl import __version__
from tfctl.errors import TfctlError
from tfctl.jobs import samples, show
from tfctl.jobs.events import events
from tfctl.jobs.state import JobState, absent
from tfctl.jobs.wait import Silence, changes
from tfctl.node import names, wire
from tfctl.remote.session import open_session
from tfctl.ui.board import Board
from tfctl.ui.objects import ProblemObject, plain_values, problems, whole_job
from tfctl.wording import plain, plain_lines

if TYPE_CHECKING:
    from tfctl.remote.fleet import Fleet
    from tfctl.remote.transport import Connection

#: How often (s) to look whether a job that is over has been started again.
_AGAIN_S = 10.0
#: How many attempts before the last have curves.
_ATTEMPTS = 5
#: How many values all curves of one figure have together, and each curve at least and at most.
_VALUES, _LEAST, _MOST = 24_000, 90, 600


class Jobs:
    """The jobs that the page has shown: each with a board and its latest state. Thread-safe."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._watched: dict[str, WatchedJob] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> WatchedJob:
        with self._lock:
            if name not in self._watched:
                self._watched[name] = WatchedJob(self._fleet, name)
            return self._watched[name]


class WatchedJob:
    """A job that is followed while somebody looks at its board."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.board = Board(self._work)
        self._all, self._name = fleet, name
        self._latest: JobState | None = None

    def open(self) -> tuple[Fleet, JobState]:
        """Return the job's hosts and its state. Raises as tfctl.jobs.show.one."""
        latest = self._latest
        if latest is None or not self.board.wanted:
            self._latest = latest = show.one(self._all, self._name)[0]
        return self._all.part(latest.hosts), latest

    def _work(self, board: Board) -> None:
        state, errors = show.one(self._all, self._name, lines=True)
        silent = {host: error.message for error in errors for host in error.hosts}
        silent.update((host, error.message) for error in absent(state, self._all.hosts) for host in error.hosts)
        self._put(board, state, silent)
        if state.over:
            board.pause(_AGAIN_S)
            return
        fleet = self._all.part(state.hosts)
        said: dict[str, str] = {}
        silence = _Noted(said)
        for latest in changes(fleet, state.job, state.attempt, silence):
            self._put(board, latest, {**silent, **said})
            if latest.over or not board.wanted:
                return

    def _put(self, board: Board, state: JobState, silent: dict[str, str]) -> None:
        self._latest = state
        board.put(whole_job(state, silent))


class _Noted(Silence):
    """Keeps the errors of silent hosts, instead of reporting them."""

    def __init__(self, said: dict[str, str]) -> None:
        super().__init__(lambda _: None)
        self._said = said

    def note(self, host: str, error: TfctlError | None) -> None:
        super().note(host, error)
        if error is None:
            self._said.pop(host, None)
        else:
            self._said[host] = error.message


class EventRow(TypedDict):
    """See tfctl.jobs.events.Event. ``how``: an ending, a reason, or who did it."""

    time: float
    attempt: int
    event: str
    task: str
    host: str
    how: str


class EventsObject(TypedDict):
    events: list[EventRow]
    errors: list[ProblemObject]


def events_of(fleet: Fleet, state: JobState) -> EventsObject:
    _, found, errors = events(fleet, state.job)
    rows: list[EventRow] = []
    for each in found:
        ending = each.signal or ("" if each.exit_code is None else f"exit code {each.exit_code}")
        how = (ending and each.oom and f"{ending}, out of memory") or ending or each.reason
        rows.append(
            {
                "time": each.time,
                "attempt": each.attempt,
                "event": each.event,
                "task": each.task,
                "host": each.host or "",
                "how": plain(how or (f"by {each.by}" if each.by else "")),
            }
        )
    return {"events": rows, "errors": problems(errors)}


class FilesObject(TypedDict):
    """``record``: the job as its hosts keep it. ``tasks``: of each task its unit file and its TF_CONFIG, or null.
    ``versions``: of tfctl here, and of the packages of the hosts."""

    record: object
    tasks: dict[str, dict[str, str | None]]
    versions: dict[str, str]
    errors: list[ProblemObject]


def files_of(fleet: Fleet, state: JobState) -> FilesObject:
    """Return what the hosts of a job keep of it, as far as they still have it."""

    def ask(connection: Connection) -> tuple[wire.TaskFiles, ...]:
        with open_session(connection, wire.PullRequest(state.job, state.attempt, False, state.run)) as session:
            return session.expect(wire.Files, wire.SILENCE_S).tasks

    outcomes = fleet.map(ask)
    found: dict[str, dict[str, str | None]] = {}
    for outcome in outcomes:
        for task in outcome.value or ():
            tf_config = None if task.tf_config is None else plain_lines(task.tf_config)
            found[names.task(*task.name)] = {"unit": plain_lines(task.unit), "tf_config": tf_config}
    record = state.record
    return {
        "record": plain_values(wire.encode(record)),
        "tasks": dict(sorted(found.items())),
        "versions": {"tfctl": __version__, "stack": plain(record.stack), "strategy": plain(record.strategy)},
        "errors": problems(outcome.error for outcome in outcomes if outcome.error is not None),
    }


Curve = list[float | None]


class SeriesObject(TypedDict):
    """``curves``: by task or host, by figure: ``t`` are the times, the others have as many values. ``attempts``: when
    each began."""

    curves: dict[str, dict[str, Curve]]
    attempts: dict[int, float]
    errors: list[ProblemObject]


def series_of(fleet: Fleet, state: JobState, since: float | None) -> SeriesObject:
    """Return the samples of the last attempts as curves, thinned; with ``since``, only those of the last one after this
    time (epoch s)."""
    first = state.attempt if since is not None else max(1, state.attempt - _ATTEMPTS)
    by_host: dict[str, list[wire.Sample]] = {}
    errors: list[TfctlError] = []
    attempts: dict[int, float] = {}
    for attempt in range(first, state.attempt + 1):
        after = {} if since is None else dict.fromkeys(state.hosts, since)
        found, failed = samples.read(fleet, state, attempt, after)
        for host, some in found.items():
            by_host.setdefault(host, []).extend(some)
        if times := [some[0].time for some in found.values() if some]:
            attempts[attempt] = min(times)
        errors = failed if attempt == state.attempt else errors
    most = max(_LEAST, min(_MOST, _VALUES // max(1, len(state.tasks))))
    curves: dict[str, dict[str, Curve]] = {}
    for host, some in by_host.items():
        curves[host] = _thinned([(each.time, _of_host(each)) for each in some], most)
        rows: dict[str, list[tuple[float, dict[str, float]]]] = {}
        for each in some:
            for task in each.tasks:
                rows.setdefault(names.task(*task.name), []).append((each.time, _of_task(task)))
        for name, points in rows.items():
            curves[name] = _thinned(points, most)
    return {"curves": curves, "attempts": attempts, "errors": problems(errors)}


def _of_host(sample: wire.Sample) -> dict[str, float]:
    return _known({"received": sample.received, "sent": sample.sent})


def _of_task(sample: wire.TaskSample) -> dict[str, float]:
    """Return what is known of a task. The figures that its lines name begin with a dot, so that none replaces ours."""
    values: dict[str, float | None] = {
        name: getattr(sample, name)
        for name in ("cpu", "memory", "read", "written", "silent", "step", "epoch", "percent", "rate", "pace")
    }
    for name, value in (sample.figures or {}).items():
        values["." + plain(name)] = value
    if gpus := sample.gpus:
        values["gpu"] = _mean([gpu.use for gpu in gpus])
        values["gpu_memory"] = _sum([gpu.memory for gpu in gpus])
        values["celsius"] = max((gpu.celsius for gpu in gpus if gpu.celsius is not None), default=None)
        values["watts"] = _sum([gpu.watts for gpu in gpus])
    return _known(values)


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _thinned(points: Sequence[tuple[float, dict[str, float]]], most: int) -> dict[str, Curve]:
    """Return the values as columns, with at most so many rows: each the mean of several that follow one another."""
    each = max(1, math.ceil(len(points) / most))
    curves: dict[str, Curve] = {"t": []}
    for start in range(0, len(points), each):
        some = points[start : start + each]
        row = len(curves["t"])
        curves["t"].append(round(some[-1][0], 1))
        for name in {name for _, values in some for name in values}:
            known = [values[name] for _, values in some if name in values]
            column = curves.setdefault(name, [])
            column += [None] * (row - len(column))
            column.append(float(f"{sum(known) / len(known):.5g}"))
    for column in curves.values():
        column += [None] * (len(curves["t"]) - len(column))
    return curves
