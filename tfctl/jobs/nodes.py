"""What every host of the inventory is, and who has what of it: one exec a host. A host that fails is a result."""

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
    """``told``: what the node part says (wire: nodes); empty where ``error`` says why it does not."""

    host: Host
    told: Mapping[str, Any]
    error: TfctlError | None = None

    @property
    def state(self) -> str:
        """``ready``, ``unreachable``, or ``unfit``: it answers, and cannot run jobs."""
        if self.error is not None:
            return "unreachable" if isinstance(self.error, Unreachable) else "unfit"
        return "ready"

    @property
    def jobs(self) -> dict[str, list[str]]:
        """Job → its tasks that run here."""
        found: dict[str, list[str]] = {}
        for task in self.told.get("tasks", ()):
            found.setdefault(task["job"], []).append(names.task(task["role"], task["index"]))
        return found

    @property
    def current(self) -> bool | None:
        """Whether its node part is the one that this tfctl would bring; None where it is not told."""
        return self.told["version"] == version() if "version" in self.told else None

    def json(self) -> dict[str, Any]:
        """An element of `nodes -o json`; of a host that does not answer all but the first four is null."""
        told = self.error
        error = None if told is None else {"exit": int(told.exit), "message": told.message, "remedy": told.remedy}
        known = {key: self.told.get(key) for key in _KEYS}
        head = {"host": self.host.name, "address": self.host.address, "state": self.state, "error": error}
        return {**head, **known, "current": self.current}


def nodes(fleet: Fleet, job: str | None = None) -> list[NodeState]:
    """Every host, in the order of the inventory; with ``job`` those on which tasks of it run, and those that do not
    answer."""

    def ask(connection: Connection) -> Any:
        with open_node(connection, wire.request("nodes")) as channel:
            return channel.receive(_ANSWER_S)[1]

    outcomes = fleet.map(ask)
    found = [NodeState(outcome.host, outcome.value or {}, outcome.error) for outcome in outcomes]
    return [node for node in found if job is None or node.error or job in node.jobs]
