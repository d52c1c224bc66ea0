"""What the hosts of the inventory have and do: the view "Cluster"."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from tfctl.errors import TfctlError, Unreachable
from tfctl.jobs import show
from tfctl.jobs.state import JobState
from tfctl.node import names, wire
from tfctl.remote.session import ask_node
from tfctl.ui.board import Board
from tfctl.ui.objects import BriefJob, GpuUse, ProblemObject, brief_job, gpus, problems
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.jobs.past import PastJob
    from tfctl.model.host import Host
    from tfctl.remote.fleet import Fleet, HostOutcome
    from tfctl.remote.transport import Connection

#: How often (s) to ask the hosts for their jobs, and for what they have: nvidia-smi may take a second for that.
_JOBS_S, _NODES_S = 3.0, 15.0
#: How often (s) the page gets what is known.
_PACE_S = 0.5
#: How long (s) a host may take to answer before it is shown as silent.
_SILENT_S = 5.0
#: How many jobs that are over are sent.
_PAST = 50


class GpuTile(TypedDict):
    """A GPU. ``memory``: MiB. ``job``, ``task``: who has it, or null; ``holder``: the same in words of the host.
    ``defect``: why no task gets it. What only a sample of its task has is null without one."""

    uuid: str
    index: int
    name: str
    memory: int
    job: str | None
    task: str | None
    holder: str
    use: int | None
    used: int | None
    celsius: int | None
    watts: int | None
    defect: str


class HostObject(TypedDict):
    """A host. ``state``: asking, ready, silent, unreachable or unfit. ``memory``: total and available, in MiB."""

    name: str
    state: str
    error: str
    remedy: str
    os: str
    cpus: int | None
    load: float | None
    memory: tuple[int, int] | None
    free: int | None
    stacks: list[str]
    gpus: list[GpuTile]
    tasks: list[tuple[str, str, str]]


class ClusterObject(TypedDict):
    hosts: list[HostObject]
    jobs: list[BriefJob] | None
    errors: list[ProblemObject]


class Cluster:
    """Asks all hosts again and again while somebody looks. A host that does not answer delays no other."""

    def __init__(self, fleet: Fleet) -> None:
        self.board = Board(self._work)
        self._fleet = fleet
        self._nodes: dict[str, wire.Node] = {}
        self._errors: dict[str, TfctlError] = {}
        #: When a host was asked that has not answered yet (time.monotonic).
        self._asked: dict[str, float] = {}
        self._jobs: list[JobState | PastJob] | None = None
        self._job_errors: list[TfctlError] = []
        self._lock = threading.Lock()

    def _work(self, board: Board) -> None:
        nodes_due = 0.0
        threading.Thread(target=self._ask_jobs, args=(board,), daemon=True).start()
        while board.wanted:
            if time.monotonic() >= nodes_due:
                self._ask_nodes()
                nodes_due = time.monotonic() + _NODES_S
            board.put(self._object())
            board.pause(_PACE_S)

    def _ask_jobs(self, board: Board) -> None:
        while board.wanted:
            began = time.monotonic()
            try:
                self._jobs, self._job_errors = show.overview(self._fleet)
            except TfctlError as error:
                self._job_errors = [error]
            # With many hosts, an answer takes long: ask in a fifth of the time at most.
            board.pause(max(_JOBS_S, 4 * (time.monotonic() - began)))

    def _ask_nodes(self) -> None:
        with self._lock:
            hosts = [host for host in self._fleet.hosts if host.name not in self._asked]
            self._asked.update((host.name, time.monotonic()) for host in hosts)

        def ask(connection: Connection) -> wire.Node:
            return ask_node(connection, wire.NodesRequest(), wire.Node, wire.SILENCE_S)

        def done(outcome: HostOutcome[wire.Node]) -> None:
            name = outcome.host.name
            with self._lock:
                self._asked.pop(name, None)
                self._errors.pop(name, None)
                if outcome.error is not None:
                    self._errors[name] = outcome.error
                else:
                    self._nodes[name] = outcome.get()

        self._fleet.begin(ask, done, hosts)

    def _object(self) -> ClusterObject:
        jobs = self._jobs
        owners = _owners(jobs or ())
        with self._lock:
            hosts = [self._host(host, owners) for host in self._fleet.hosts]
        shown = [each for each in jobs or () if not each.ended]
        shown += [each for each in jobs or () if each.ended][:_PAST]
        silent = set(self._errors)
        errors = [error for error in self._job_errors if not set(error.hosts) <= silent or not error.hosts]
        return {
            "hosts": hosts,
            "jobs": None if jobs is None else [brief_job(each) for each in shown],
            "errors": problems(errors),
        }

    def _host(self, host: Host, owners: Mapping[tuple[str, str], tuple[str, str, GpuUse]]) -> HostObject:
        node, error = self._nodes.get(host.name), self._errors.get(host.name)
        since = self._asked.get(host.name)
        state = "ready" if node else "asking"
        if error is not None:
            state = "unreachable" if isinstance(error, Unreachable) else "unfit"
        elif since is not None and time.monotonic() - since > _SILENT_S:
            state = "silent"
        return {
            "name": host.name,
            "state": state,
            "error": plain(error.message) if error else "",
            "remedy": plain(error.remedy) if error else "",
            "os": plain(node.os or "") if node else "",
            "cpus": node.cpus if node else None,
            "load": node.load if node else None,
            "memory": node.memory_mib if node else None,
            "free": node.disks[0].free_mib if node and node.disks else None,
            "stacks": [plain(name) for name in node.stacks] if node else [],
            "gpus": [_tile(host.name, gpu, node, owners) for gpu in node.gpus] if node else [],
            "tasks": [
                (plain(task.job), names.task(task.role, task.index), plain(task.state))
                for task in (node.tasks if node else ())
            ],
        }


def _owners(jobs: Sequence[JobState | PastJob]) -> dict[tuple[str, str], tuple[str, str, GpuUse]]:
    """Return by host and UUID of a GPU: the job and the task that have it, and what the last sample says."""
    return {
        (task.host, gpu["uuid"]): (job.job, str(task), gpu)
        for job in jobs
        if isinstance(job, JobState)
        for task in job.tasks
        if task.alive or task.state == "unknown"
        for gpu in gpus(task)
    }


def _tile(
    host: str, gpu: wire.Gpu, node: wire.Node, owners: Mapping[tuple[str, str], tuple[str, str, GpuUse]]
) -> GpuTile:
    job, task, read = owners.get((host, gpu.uuid), (None, None, None))
    card = next((card for card in node.cards if card.uuid == gpu.uuid), None)
    return {
        "uuid": plain(gpu.uuid),
        "index": gpu.index,
        "name": plain(gpu.name),
        "memory": gpu.memory_mib,
        "job": job,
        "task": task,
        "holder": plain(gpu.holder),
        "use": read["use"] if read else None,
        "used": read["memory"] if read else None,
        "celsius": read["celsius"] if read and read["celsius"] is not None else card.celsius if card else None,
        "watts": read["watts"] if read and read["watts"] is not None else card.watts if card else None,
        "defect": plain(gpu.defect or ""),
    }
