"""A fully resolved job: the frozen values from which units, environment files and plans are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tfctl.model.host import Host
from tfctl.model.strategies.base import Cluster, Name, Strategy
from tfctl.node import names


@dataclass(frozen=True)
class Policy:
    """When the job is done and what happens then. Durations are in seconds.

    ``vital`` holds groups of tasks; the job fails when every task of one group has failed for good. ``leaves`` names
    the roles whose tasks end by themselves soon after the deciders.
    """

    deciders: tuple[Name, ...]
    vital: tuple[tuple[Name, ...], ...]
    leaves: tuple[str, ...]
    clean: str
    max_restarts: int
    deadline: int | None
    grace: int
    drain: int


@dataclass(frozen=True)
class Slot:
    """A task with a host, but no port or GPUs yet. ``gpus`` None means an equal share of the host's GPUs."""

    role: str
    index: int
    host: Host
    gpus: int | None
    command: tuple[str, ...]
    env: Mapping[str, str]
    stack: str


@dataclass(frozen=True)
class Task:
    """One process of the job. ``gpus`` holds UUIDs; None if the host has no GPUs."""

    slot: Slot
    address: str
    port: int
    gpus: tuple[str, ...] | None

    @property
    def role(self) -> str:
        return self.slot.role

    @property
    def index(self) -> int:
        return self.slot.index

    @property
    def host(self) -> Host:
        return self.slot.host

    @property
    def dial(self) -> str:
        """``address:port``, where the other tasks reach this one."""
        return f"{self.address}:{self.port}"

    def __str__(self) -> str:
        return names.task(self.role, self.index)


@dataclass(frozen=True)
class Layout:
    """What follows from job file and inventory alone, before any host is asked. ``notes`` are for the user."""

    name: str
    strategy: Strategy
    inventory: str
    output: str
    ports: tuple[int, int] | None
    cloud: bool
    policy: Policy
    slots: tuple[Slot, ...]
    notes: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts that have tasks, in the order of their first task."""
        return tuple(dict.fromkeys(slot.host for slot in self.slots))

    @property
    def shares_output(self) -> bool:
        """Whether several tasks write to the output directory: each ps saves its own part of a checkpoint."""
        return sum(slot.role == "ps" for slot in self.slots) > 1 or self.strategy.shared_output


@dataclass(frozen=True)
class Job:
    """One attempt of a job: its tasks with their hosts, ports and GPUs. ``started`` is in epoch seconds.

    ``secret`` lets tasks authenticate each other, if the strategy uses it.
    """

    layout: Layout
    attempt: int
    run: str
    started: float
    tasks: tuple[Task, ...]
    secret: str = ""

    @property
    def name(self) -> str:
        return self.layout.name

    @cached_property
    def cluster(self) -> Cluster:
        """Every role's addresses, in the order of their indices."""
        found: dict[str, tuple[str, ...]] = {}
        for task in self.tasks:
            found[task.role] = (*found.get(task.role, ()), task.dial)
        return found
