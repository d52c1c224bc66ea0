"""Events of a run of Ansible, from the messages of plugins/callback/events.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict

from tfctl.provision.explanation import with_exit_codes
from tfctl.provision.faults import Fault, without_passwords
from tfctl.provision.order import batch_name
from tfctl.provision.results import HostResult, PlayResult, checked, faults_of
from tfctl.schema import SchemaError
from tfctl.wording import abbreviated

#: The role that only inspects hosts.
_INSPECTION = "preflight"

State = Literal["ok", "changed", "failed", "unreachable", "skipped"]


class PlayMessage(TypedDict):
    """A play begins on a batch of its hosts, in inventory order.

    ``serial``: the sizes of the batches, the last for all further ones; empty if all hosts are one batch.
    """

    event: Literal["play"]
    hosts: list[str]
    batch: list[str]
    serial: list[int]


class TaskMessage(TypedDict):
    """A task begins. ``role``: its role, or ""."""

    event: Literal["task"]
    role: str
    task: str


class HostMessage(TypedDict):
    """A task has ended on a host. ``result``: a TaskResult, unless the host has put something else into it."""

    event: Literal["host"]
    host: str
    role: str
    task: str
    state: State
    result: object


class WaitsMessage(TypedDict):
    """A task on a host waits for another run, which the text describes. The host has sent text and time."""

    event: Literal["waits"]
    host: str
    text: object
    at_most_s: object


class StatsMessage(TypedDict):
    """The run has ended. The counts are those of Ansible's recap: ok, changed, failures, unreachable, …"""

    event: Literal["stats"]
    hosts: dict[str, dict[str, int]]


Message = PlayMessage | TaskMessage | HostMessage | WaitsMessage | StatsMessage


@dataclass(frozen=True)
class Began:
    """The work on these hosts has begun. ``batch``: the name of their batch, or "" if all hosts are in one."""

    hosts: tuple[str, ...]
    batch: str = ""


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
    """Collects the plugin's messages one by one. ``finished``: the run is complete, whether or not hosts failed.

    ``variables``: the variables of roles, and those of the inventory that a user knows instead. ``worked``: whether a
    task has run on a host that did more than inspect it.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    worked: bool = False
    finished: bool = False
    _hosts: dict[str, HostResult] = field(default_factory=dict)
    _counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    _waiting: list[str] = field(default_factory=list)
    _batches: list[Began] = field(default_factory=list)
    _warnings: list[str] = field(default_factory=list)

    def take(self, message: Message) -> list[Event]:
        """Take one message and return its events."""
        if message["event"] == "play":
            return self._play(message)
        if message["event"] == "task":
            return [TaskStarted(_title(message))]
        if message["event"] == "host":
            return self._host(message)
        if message["event"] == "waits":
            minutes = message["at_most_s"] // 60 if isinstance(message["at_most_s"], int) else "a few"
            return [Warned(message["host"], f"waits up to {minutes} min: {without_passwords(str(message['text']))}")]
        self._counts, self.finished = message["hosts"], True
        return self._ended_early()

    def result(self) -> PlayResult:
        return PlayResult(tuple(self._completed(host) for host in self._hosts.values()), tuple(self._warnings))

    def _play(self, message: PlayMessage) -> list[Event]:
        hosts, serial = message["hosts"], message["serial"]
        for host in hosts:
            self._hosts.setdefault(host, HostResult(host))
        if not serial:
            return [Began(tuple(message["batch"]))]
        if any(self._failed(host) for batch in self._batches for host in batch.hosts):
            return []  # the playbook does nothing in the batches after a failed one
        name = batch_name(len(self._batches), len(hosts), serial)
        self._batches.append(Began(tuple(message["batch"]), name))
        begun = {host for batch in self._batches for host in batch.hosts}
        self._waiting = [host for host in hosts if host not in begun]
        return [self._batches[-1]]

    def _host(self, message: HostMessage) -> list[Event]:
        host, state = message["host"], message["state"]
        try:
            result = checked(message["result"])
        except SchemaError as error:  # the host has sent it: the others must not be affected
            wrong = f"the host's answer to this task is malformed: {without_passwords(str(error)):.300}"
            remedy = "find out what changes the answers of Ansible's modules on {host}, then try again"
            state, result = "failed", {"faults": [{"message": wrong, "remedy": remedy, "kind": "failed"}]}
        known = self._hosts[host]
        warnings = [without_passwords(text) for text in result.get("warnings", [])]
        self.worked |= message["role"] != _INSPECTION and state != "skipped"
        if state in ("failed", "unreachable"):
            faults = faults_of(result, host, state == "unreachable", self.variables)
            failed, unreachable = state == "failed", state == "unreachable"
            known = replace(known, task=_title(message), faults=faults, failed=failed, unreachable=unreachable)
        known = replace(
            known,
            drifts=tuple(result.get("drifts", known.drifts)),
            warnings=(*known.warnings, *warnings),
            removed=tuple(result.get("removed", known.removed)),
            kept=tuple(result.get("kept", known.kept)),
        )
        if "explained" in result:
            known = replace(known, explained=with_exit_codes(result["explained"], host))
        self._hosts[host] = known
        drifts = [without_passwords(text) for text in result.get("drifts", [])]
        warned: list[Event] = [Warned(host, text) for text in (*warnings, *drifts)]
        return [*warned, HostDone(host, _title(message), state, without_passwords(result.get("diff", "")))]

    def _ended_early(self) -> list[Event]:
        """Return a warning if Ansible skipped the last play, as it does when all hosts of a batch have failed."""
        *earlier, last = self._batches or [Began(())]
        if not earlier or not all(self._failed(host) for host in last.hosts):
            return []
        text = "all its hosts failed, so the run ended before data sets and ssh_mesh were set up on the others"
        self._warnings.append(f"{last.batch}: {text}")
        return [Warned(last.batch, text)]

    def _failed(self, host: str) -> bool:
        return self._hosts[host].failed or self._hosts[host].unreachable

    def _completed(self, host: HostResult) -> HostResult:
        if host.host in self._waiting:
            return replace(host, begun=False, faults=(self._reason_for_waiting(),))
        counts = self._counts.get(host.host, {})
        if counts.get("failures") and not (host.failed or host.unreachable):
            # Ansible could not read what the host has sent, and so the plugin has sent no message.
            fault = Fault(
                "a task failed, and Ansible could not read why", f"look at {host.host} itself, then try again"
            )
            host = replace(host, failed=True, faults=(fault,))
        return replace(host, ok=counts.get("ok", 0), changed=counts.get("changed", 0))

    def _reason_for_waiting(self) -> Fault:
        batch = self._batches[-1]
        names = abbreviated([host for host in batch.hosts if self._failed(host)])
        return Fault(f"not begun, because {names} failed in {batch.batch}", f"repair {names}, then try again")


def _title(message: TaskMessage | HostMessage) -> str:
    role, task = message["role"], message["task"]
    return f"{role}: {task}" if role else task
