"""A fully resolved job: the frozen values from which units, environment files and plans are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tfctl.model.host import Host
from tfctl.model.jobfile import Policy
from tfctl.model.rules import Rules
from tfctl.model.strategies.base import Cluster, Strategy, TaskEnvironment
from tfctl.model.task import Slot, Task


@dataclass(frozen=True)
class Layout:
    """What follows from job file and inventory alone, before any host is asked.

    ``code`` is the local directory to send, and ``include`` lists files in it to send in any case. ``env_file`` is the
    file of variables, which the slots have. ``policy`` is the job file's; ``rules`` has what the strategy adds to it.
    ``others`` are the inventory's hosts that have no task. ``output`` is "" if the job needs no directory of
    the hosts; ``local``: each host has a directory of its own.
    ``notes`` are for the user. ``requirements`` is the local file with the packages that the job needs besides its
    stack, or None. ``progress``: how to read progress from what tasks print, or None; ``progress_total``: how many
    steps, or epochs, the job has. ``tests_network``: the job itself finds hosts that do not reach each other.
    """

    name: str
    strategy: Strategy
    inventory: str
    code: Path
    output: str
    ports: tuple[int, int] | None
    cloud: bool
    policy: Policy
    rules: Rules
    slots: tuple[Slot, ...]
    notes: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    env_file: Path | None = None
    others: tuple[Host, ...] = ()
    local: bool = False
    requirements: Path | None = None
    progress: str | None = None
    progress_total: int | None = None
    tests_network: bool = False

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts that have tasks, in the order of their first task."""
        return tuple(dict.fromkeys(slot.host for slot in self.slots))

    @property
    def head(self) -> Slot:
        """The first task that decides how the job ends. The guard of its host decides for all hosts."""
        return next(slot for slot in self.slots if slot.name == self.rules.deciders[0])

    @property
    def shares_output(self) -> bool:
        """Whether several tasks write to one output directory: each ps saves its own part of a checkpoint."""
        if self.local or not self.output:
            return False
        return self.strategy.shared_output or sum(slot.role == "ps" for slot in self.slots) > 1


@dataclass(frozen=True)
class Job:
    """One attempt of a job: its tasks with their hosts, ports and GPUs. ``started`` is in epoch seconds.

    ``secret`` lets tasks authenticate each other, if the strategy uses it. ``guard_port``: where the guards of
    the other hosts reach that of the head; 0 if there is one host alone. ``guard_key``: what they authenticate with.
    ``requirements``: where a host has the packages that the job needs besides a stack, by the names of both.
    """

    layout: Layout
    attempt: int
    run: str
    started: float
    tasks: tuple[Task, ...]
    secret: str = ""
    guard_port: int = 0
    guard_key: str = ""
    requirements: Mapping[tuple[str, str], str] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        return self.layout.name

    @cached_property
    def cluster(self) -> Cluster:
        """Every role's addresses, in the order of their indices."""
        found: dict[str, list[str]] = {}
        for task in self.tasks:
            found.setdefault(task.role, []).append(task.dial)
        return {role: tuple(addresses) for role, addresses in found.items()}

    @cached_property
    def host_lists(self) -> dict[str, str]:
        """Every role's addresses, joined by commas, under names such as ``ps_hosts``."""
        return {f"{role}_hosts": ",".join(addresses) for role, addresses in self.cluster.items()}

    @cached_property
    def gpus_of_role(self) -> dict[tuple[str, str], list[str]]:
        """The GPUs of all tasks of a role on a host, by the names of both."""
        found: dict[tuple[str, str], list[str]] = {}
        for task in self.tasks:
            found.setdefault((task.role, task.host.name), []).extend(task.gpus or ())
        return found

    @cached_property
    def strategy_environment(self) -> TaskEnvironment:
        """The function that returns what the strategy adds to the environment of a task."""
        return self.layout.strategy.task_environment(self.tasks, self.secret)
