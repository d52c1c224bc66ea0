"""Events of a run of Ansible, from the messages of playbooks/callback_plugins/tfctl_events.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict

from tfctl.provision.explanation import with_exit_codes
from tfctl.provision.faults import without_passwords
from tfctl.provision.results import HostResult, PlayResult, TaskResult, faults_of

State = Literal["ok", "changed", "failed", "unreachable", "skipped"]


class PlayMessage(TypedDict):
    """A play begins on these hosts, in inventory order."""

    event: Literal["play"]
    hosts: list[str]


class TaskMessage(TypedDict):
    """A task begins. ``role``: its role, or ""."""

    event: Literal["task"]
    role: str
    task: str


class HostMessage(TypedDict):
    """A task has ended on a host."""

    event: Literal["host"]
    host: str
    role: str
    task: str
    state: State
    result: TaskResult


class WaitsMessage(TypedDict):
    """A task on a host waits for another run, which the text describes."""

    event: Literal["waits"]
    host: str
    text: str
    at_most_s: int


class StatsMessage(TypedDict):
    """The run has ended. The counts are those of Ansible's recap: ok, changed, failures, unreachable, …"""

    event: Literal["stats"]
    hosts: dict[str, dict[str, int]]


Message = PlayMessage | TaskMessage | HostMessage | WaitsMessage | StatsMessage


@dataclass(frozen=True)
class Began:
    """The run has begun on these hosts, in inventory order."""

    hosts: tuple[str, ...]


@dataclass(frozen=True)
class TaskStarted:
    """A task has started on all hosts that are still in the run."""

    name: str


@dataclass(frozen=True)
class HostDone:
    """A task has ended on one host. ``diff``: for --diff."""

    host: str
    task: str
    state: State
    diff: str = ""


@dataclass(frozen=True)
class Warned:
    """A warning for the owner of the host."""

    host: str
    text: str


Event = Began | TaskStarted | HostDone | Warned


@dataclass
class Collector:
    """Collects the plugin's messages one by one. ``finished``: the run is complete, whether or not hosts failed."""

    finished: bool = False
    _hosts: dict[str, HostResult] = field(default_factory=dict)
    _counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def take(self, message: Message) -> list[Event]:
        """Take one message and return its events."""
        if message["event"] == "play":
            for host in message["hosts"]:
                self._hosts.setdefault(host, HostResult(host))
            return [Began(tuple(message["hosts"]))]
        if message["event"] == "task":
            return [TaskStarted(_title(message))]
        if message["event"] == "host":
            return self._host(message)
        if message["event"] == "waits":
            return [Warned(message["host"], f"waits up to {message['at_most_s'] // 60} min: {message['text']}")]
        self._counts, self.finished = message["hosts"], True
        return []

    def result(self) -> PlayResult:
        return PlayResult(tuple(self._counted(host) for host in self._hosts.values()))

    def _host(self, message: HostMessage) -> list[Event]:
        host, state, result = message["host"], message["state"], message["result"]
        known = self._hosts[host]
        if state in ("failed", "unreachable"):
            faults = faults_of(result, host, state == "unreachable")
            failed, unreachable = state == "failed", state == "unreachable"
            known = replace(known, task=_title(message), faults=faults, failed=failed, unreachable=unreachable)
        known = replace(
            known,
            drifts=tuple(result.get("drifts", known.drifts)),
            removed=tuple(result.get("removed", known.removed)),
            kept=tuple(result.get("kept", known.kept)),
        )
        if "explained" in result:
            known = replace(known, explained=with_exit_codes(result["explained"], host))
        self._hosts[host] = known
        texts = [*result.get("warnings", []), *result.get("drifts", [])]
        warned: list[Event] = [Warned(host, without_passwords(str(text))) for text in texts]
        return [*warned, HostDone(host, _title(message), state, without_passwords(result.get("diff", "")))]

    def _counted(self, host: HostResult) -> HostResult:
        counts = self._counts.get(host.host, {})
        return replace(host, ok=counts.get("ok", 0), changed=counts.get("changed", 0))


def _title(message: TaskMessage | HostMessage) -> str:
    role, task = message["role"], message["task"]
    return f"{role}: {task}" if role else task
