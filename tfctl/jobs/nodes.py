"""What every host of the inventory has, and which jobs use it. One exec per host; a host's failure is a result."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from tfctl.errors import ErrorObject, PreflightFailed, TfctlError, Unreachable
from tfctl.jobs import clocks
from tfctl.model.host import Host
from tfctl.node import names, wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import ask_node

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection


StateName = Literal["ready", "unreachable", "unfit"]


#: What a host answers and `nodes -o json` does not print.
INTERNAL = ("time", "machine")


class NodeObject(TypedDict):
    """One host. If it does not answer, all keys but the first four are null.

    ``address``: where the other hosts reach it; null if they resolve its name. ``error``: why it does not answer, or
    why no job can start there; else null. ``current``: whether its node part is the version that this tfctl installs.
    ``clock_offset``: by how many seconds, at least, its clock is ahead of this machine's; null if unknown.
    """

    host: str
    address: str | None
    state: StateName
    error: ErrorObject | None
    current: bool | None
    clock_offset: float | None


@dataclass(frozen=True)
class NodeState:
    """One host. ``node`` is the node part's answer, or None. ``error`` says why there is none, or why no job can start.

    ``expected``: the version of the node part that this tfctl would install. ``clock_offset``: by how many seconds, at
    least, the host's clock is ahead of this machine's; None if unknown.
    """

    host: Host
    node: wire.Node | None
    expected: str
    error: TfctlError | None = None
    clock_offset: float | None = None

    @property
    def state(self) -> StateName:
        """``ready``, ``unreachable``, or ``unfit``: the host answers but cannot run jobs."""
        if self.error is not None:
            return "unreachable" if isinstance(self.error, Unreachable) else "unfit"
        return "ready"

    @property
    def jobs(self) -> dict[str, list[str]]:
        """The tasks that run here, by job."""
        found: dict[str, list[str]] = {}
        for task in self.node.tasks if self.node else ():
            found.setdefault(task.job, []).append(names.task(task.role, task.index))
        return found

    @property
    def current(self) -> bool | None:
        """Whether the host's node part is the one this tfctl would install; None if unknown."""
        return self.node.version == self.expected if self.node else None

    def json(self) -> NodeObject:
        """Return an element of `nodes -o json`. If the host does not answer, all but the first four keys are null."""
        error = self.error.json() if self.error else None
        known = wire.encode(self.node) if self.node else dict.fromkeys(wire.Node._fields)
        for name in INTERNAL:
            known.pop(name, None)
        head = {"host": self.host.name, "address": self.host.address, "state": self.state, "error": error}
        return cast("NodeObject", {**head, **known, "current": self.current, "clock_offset": self.clock_offset})


def nodes(fleet: Fleet, expected: str, job: str | None = None) -> list[NodeState]:
    """Return every host, in inventory order. With ``job``, only hosts that run its tasks or do not answer.

    ``expected``: the version of the node part that this tfctl would install.
    """

    def ask(connection: Connection) -> wire.Node:
        asked = time.time()
        found = ask_node(connection, wire.NodesRequest(), wire.Node, wire.SILENCE_S)
        fleet.clock_offsets[connection.host.name] = clocks.offset(asked, found.time, time.time())
        return found

    outcomes = fleet.map(ask)
    found = [
        NodeState(
            outcome.host,
            outcome.value,
            expected,
            outcome.error or _full(outcome.host.name, outcome.value),
            fleet.clock_offsets.get(outcome.host.name),
        )
        for outcome in outcomes
    ]
    return [node for node in found if job is None or node.node is None or job in node.jobs]


def _full(host: str, node: wire.Node | None) -> TfctlError | None:
    """Return an error if the directory of the jobs has too little room for a start."""
    for disk in node.disks[:1] if node else ():
        if disk.free_mib * 2**20 < wire.SPARE:
            return PreflightFailed(
                f"{host}: {disk.path} has {disk.free_mib} MiB free; a start needs {wire.SPARE // 2**20} MiB",
                wire.MAKE_ROOM,
            )
    return None
