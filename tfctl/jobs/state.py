"""Combine what a job's hosts report into the state of each task and of the job.

Pure functions: they turn the answers to `show` into the value behind tables, JSON and the waiting commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tfctl.errors import NotFound
from tfctl.node.names import task as task_name
from tfctl.wording import counted

#: States that a task does not leave by itself.
ENDED = ("succeeded", "failed", "stopped", "lost")
_ALIVE = ("running", "starting", "pending")
#: Display order: tasks that need attention come first.
_ATTENTION = ("failed", "lost", "unknown", "starting", "pending", "running", "stopped", "succeeded")


@dataclass(frozen=True)
class TaskState:
    """One task. Times are in epoch seconds; ``signal`` is a name; ``host`` is the inventory's name."""

    role: str
    index: int
    host: str
    address: str
    port: int
    unit: str
    state: str
    gpus: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: str | None = None
    started: float | None = None
    finished: float | None = None
    restarts: int = 0

    def __str__(self) -> str:
        return task_name(self.role, self.index)

    @property
    def alive(self) -> bool:
        """Whether there is something to stop."""
        return self.state in _ALIVE

    @property
    def ending(self) -> str:
        """How it ended: ``exit code 7``, ``SIGKILL``, or an empty string."""
        if self.signal:
            return self.signal
        return "" if self.exit_code is None else f"exit code {self.exit_code}"


@dataclass(frozen=True)
class JobState:
    """One job. ``state`` is succeeded, failed, stopped, unknown, starting or running; ``reason`` explains it in a
    sentence, or is empty. ``record`` is wire.RECORD."""

    job: str
    attempt: int
    state: str
    reason: str
    finished: float | None
    record: Mapping[str, Any]
    tasks: tuple[TaskState, ...]

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def alive(self) -> bool:
        """Whether any task is alive, even if the job has ended."""
        return any(task.alive for task in self.tasks)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the job's hosts, in the order of their first task."""
        return tuple(dict.fromkeys(task.host for task in self.tasks))

    def by_attention(self) -> list[TaskState]:
        """Return the tasks in the order of the table, failed ones first."""
        return sorted(self.tasks, key=lambda task: _ATTENTION.index(task.state))

    def json(self) -> dict[str, Any]:
        """Return the object that `status -o json` prints."""
        return {
            "job": self.job,
            "attempt": self.attempt,
            "run": self.record["run"],
            "state": self.state,
            "strategy": self.record["strategy"],
            "inventory": self.record["inventory"],
            "started": rfc3339(self.record["started"]),
            "finished": rfc3339(self.finished),
            "reason": self.reason,
            "tasks": [_task_json(task) for task in self.tasks],
        }


def jobs(answers: Mapping[str, Sequence[Mapping[str, Any]] | None]) -> list[JobState]:
    """Return every job at its highest attempt, the most recently started first.

    ``answers`` maps each host to its SHOWN jobs (wire), or to None if it does not answer.
    """
    shown: dict[str, dict[str, Mapping[str, Any]]] = {}
    for host, found in answers.items():
        for each in found or ():
            shown.setdefault(each["job"], {})[host] = each
    states = [_job(job, by_host, answers) for job, by_host in shown.items()]
    return sorted(states, key=lambda state: -state.record["started"])


def unknown(job: str) -> NotFound:
    """Return the error for a job that no host knows, when all have answered."""
    return NotFound(f"no host knows a job {job!r}", "tfctl list shows the jobs that exist")


def rfc3339_ms(time: float) -> str:
    """Format an epoch time as RFC 3339, in UTC, to the millisecond."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rfc3339(time: float | None) -> str | None:
    """Format an epoch time as RFC 3339, in UTC, in whole seconds."""
    return None if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _job(job: str, by_host: Mapping[str, Mapping[str, Any]], answers: Mapping[str, object]) -> JobState:
    attempt = max(shown["attempt"] for shown in by_host.values())
    latest = {host: shown for host, shown in by_host.items() if shown["attempt"] == attempt}
    record = next(iter(latest.values()))["record"]
    told = {(task["role"], task["index"]): task for shown in latest.values() for task in shown["tasks"]}
    tasks = tuple(_task(wanted, told, answers) for wanted in record["tasks"])
    stopped = [shown["stopped"] for shown in latest.values() if shown["stopped"] is not None]
    state, reason, finished = _judge(record, tasks, stopped)
    return JobState(job, attempt, state, reason, finished, record, tasks)


def _task(
    wanted: Mapping[str, Any], told: Mapping[tuple[str, int], Mapping[str, Any]], answers: Mapping[str, object]
) -> TaskState:
    found = told.get((wanted["role"], wanted["index"]))
    # A host that answers but does not know its task has lost it; a silent host may still have it.
    state = found["state"] if found else "lost" if answers.get(wanted["host"]) is not None else "unknown"
    known = {key: wanted[key] for key in ("role", "index", "host", "address", "port", "unit")}
    more = {key: found[key] for key in ("exit_code", "signal", "started", "finished", "restarts")} if found else {}
    return TaskState(**known, gpus=tuple(wanted["gpus"]), state=state, **more)


def _judge(
    record: Mapping[str, Any], tasks: Sequence[TaskState], stopped: Sequence[float]
) -> tuple[str, str, float | None]:
    """Return the job's state, the reason, and the time it ended."""
    if stopped:
        return "stopped", "", min(stopped)
    deciding = set(map(tuple, record["deciders"]))
    deciders = [task for task in tasks if (task.role, task.index) in deciding]
    if all(task.state == "succeeded" for task in deciders):
        return "succeeded", "", _latest(deciders)
    fallen = _fallen(record, tasks)
    if fallen:
        return "failed", _why(fallen[0]), fallen[0].finished
    going = [task.state for task in tasks]
    for state in ("unknown", "starting", "running"):
        if state in going:
            silent = ", ".join(dict.fromkeys(task.host for task in tasks if task.state == "unknown"))
            return state, f"no answer from {silent}" if state == "unknown" else "", None
    if "pending" in going:
        return "starting", "", None
    return "stopped", "its tasks were stopped one by one", _latest(tasks)


def _fallen(record: Mapping[str, Any], tasks: Sequence[TaskState]) -> list[TaskState]:
    """Return the tasks whose failure made the job fail, in the order they ended."""
    gone = {(task.role, task.index): task for task in tasks if task.state in ("failed", "lost")}
    groups = [[name] for name in record["deciders"]] + record.get("vital", [])
    whole = [group for group in groups if all(tuple(name) in gone for name in group)]
    found = {gone[role, index] for group in whole for role, index in group}
    return sorted(found, key=lambda task: task.finished or float("inf"))


def _why(task: TaskState) -> str:
    if task.state == "lost":
        return f"{task} on {task.host} is lost: its unit is gone without a result, as after a reboot"
    again = f" after {counted(task.restarts, 'restart')}" if task.restarts else ""
    return f"{task} on {task.host} failed with {task.ending}{again}" if task.ending else f"{task} on {task.host} failed"


def _latest(tasks: Iterable[TaskState]) -> float | None:
    return max((task.finished for task in tasks if task.finished is not None), default=None)


def _task_json(task: TaskState) -> dict[str, Any]:
    return {
        "role": task.role,
        "index": task.index,
        "host": task.host,
        "address": task.address,
        "port": task.port,
        "unit": task.unit,
        "state": task.state,
        "exit_code": task.exit_code,
        "signal": task.signal,
        "started": rfc3339(task.started),
        "finished": rfc3339(task.finished),
        "restarts": task.restarts,
        "gpus": list(task.gpus),
    }
