"""What the hosts of the inventory have and do: the view "Cluster"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from tfctl.errors import TfctlError, Unreachable
from tfctl.jobs.metrics import Scrape, Scraper
from tfctl.jobs.state import JobState
from tfctl.node import names, wire
from tfctl.ui.board import Board
from tfctl.ui.objects import BriefJob, GpuUse, ProblemObject, brief_job, gpus, problems
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.jobs.past import PastJob
    from tfctl.model.host import Host
    from tfctl.remote.fleet import Fleet

#: How often (s) to ask the hosts for their jobs, and for what they have: nvidia-smi may take a second.
_JOBS_S, _NODES_S = 3.0, 15.0
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
        self._scraper = Scraper(fleet, _SILENT_S, _NODES_S)
        #: The last answer of each host.
        self._nodes: dict[str, wire.Node] = {}

    def _work(self, board: Board) -> None:
        board.put(self._object(None))
        while board.wanted:
            found = self._scraper.scrape()
            self._nodes.update((host.name, node) for host, node in found.hosts if node)
            board.put(self._object(found))
            # With many hosts, an answer takes long: ask in a fifth of the time at most.
            board.pause(max(_JOBS_S, 4 * found.seconds) if not found.silent else _JOBS_S)

    def _object(self, found: Scrape | None) -> ClusterObject:
        jobs = found.jobs if found else ()
        owners = _owners(jobs)
        shown = [each for each in jobs if not each.ended]
        shown += [each for each in jobs if each.ended][:_PAST]
        silent = found.silent if found else {}
        errors = (
            [error for error in found.errors if not error.hosts or not silent.keys() >= set(error.hosts)]
            if found
            else []
        )
        return {
            "hosts": [self._host(host, owners, found) for host in self._fleet.hosts],
            "jobs": [brief_job(each) for each in shown] if found else None,
            "errors": problems(errors),
        }

    def _host(
        self, host: Host, owners: Mapping[tuple[str, str], tuple[str, str, GpuUse]], found: Scrape | None
    ) -> HostObject:
        node = self._nodes.get(host.name)
        state, error = _state(host.name, found)
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


def _state(host: str, found: Scrape | None) -> tuple[str, TfctlError | None]:
    if found is None:
        return "asking", None
    if host not in found.silent:
        return "ready", None
    error = found.silent[host]
    if error is None:
        return "silent", None
    return "unreachable" if isinstance(error, Unreachable) else "unfit", error


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
