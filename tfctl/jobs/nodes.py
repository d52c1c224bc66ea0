"""What every host of the inventory has, and which jobs use it. One exec per host; a host's failure is a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfctl.errors import TfctlError, Unreachable
from tfctl.model.host import Host
from tfctl.node import names, wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import open_node
from tfctl.remote.node_part import version

if TYPE_CHECKING:
    from tfctl.remote.ssh import Connection

_ANSWER_S = 30.0
_KEYS = (
    "protocol", "version", "os", "kernel", "systemd", "cpus", "load", "memory_mib", "stacks", "gpus", "gpu_trouble",
    "ports", "tasks",
)  # fmt: skip


@dataclass(frozen=True)
class NodeState:
    """One host. ``told`` is the node part's answer (wire: nodes), or empty if ``error`` says why there is none."""

    host: Host
    told: Mapping[str, Any]
    error: TfctlError | None = None

    @property
    def state(self) -> str:
        """``ready``, ``unreachable``, or ``unfit``: the host answers but cannot run jobs."""
        if self.error is not None:
            return "unreachable" if isinstance(self.error, Unreachable) else "unfit"
        return "ready"

    @property
    def jobs(self) -> dict[str, list[str]]:
        """The tasks that run here, by job."""
        found: dict[str, list[str]] = {}
        for task in self.told.get("tasks", ()):
            found.setdefault(task["job"], []).append(names.task(task["role"], task["index"]))
        return found

    @property
    def current(self) -> bool | None:
        """Whether the host's node part is the one this tfctl would install; None if unknown."""
        return self.told["version"] == version() if "version" in self.told else None

    def json(self) -> dict[str, Any]:
        """Return an element of `nodes -o json`. If the host does not answer, all but the first four keys are null."""
        told = self.error
        error = None if told is None else {"exit": int(told.exit), "message": told.message, "remedy": told.remedy}
        known = {key: self.told.get(key) for key in _KEYS}
        head = {"host": self.host.name, "address": self.host.address, "state": self.state, "error": error}
        return {**head, **known, "current": self.current}


def nodes(fleet: Fleet, job: str | None = None) -> list[NodeState]:
    """Return every host, in inventory order. With ``job``, only hosts that run its tasks or do not answer."""

    def ask(connection: Connection) -> Any:
        with open_node(connection, wire.request("nodes")) as channel:
            return channel.receive(_ANSWER_S)[1]

    outcomes = fleet.map(ask)
    found = [NodeState(outcome.host, outcome.value or {}, outcome.error) for outcome in outcomes]
    return [node for node in found if job is None or node.error or job in node.jobs]
