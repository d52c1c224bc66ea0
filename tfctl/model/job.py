"""A job whose questions are answered: the frozen values that units, environment files and plans are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tfctl.model.host import Host
from tfctl.model.strategies.base import Cluster, Name, Strategy
from tfctl.node import names


@dataclass(frozen=True)
class Policy:
    """When the job is done and what then happens; durations in seconds.

    ``vital``: groups of tasks; one that is gone for good, all of it, takes the job with it. ``leaves``: roles whose
    tasks end by themselves soon after the deciders.
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
    """A task that has its host, and no port or GPU yet. ``gpus`` None: an equal share of what the host has."""

    role: str
    index: int
    host: Host
    gpus: int | None
    command: tuple[str, ...]
    env: Mapping[str, str]
    stack: str


@dataclass(frozen=True)
class Task:
    """One process of the job. ``gpus`` are UUIDs; None where there are none to choose from."""

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
        """``address:port``, by which the other tasks reach it."""
        return f"{self.address}:{self.port}"

    def __str__(self) -> str:
        return names.task(self.role, self.index)


@dataclass(frozen=True)
class Layout:
    """What follows from job file and inventory alone, before any host was asked.

    ``notes`` are sentences for the user.
    """

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
        """The hosts that have tasks, in the order of their first one."""
        return tuple(dict.fromkeys(slot.host for slot in self.slots))

    @property
    def shares_output(self) -> bool:
        """Whether several tasks write to the output directory: each ps saves its own part of a checkpoint."""
        return sum(slot.role == "ps" for slot in self.slots) > 1 or self.strategy.shared_output


@dataclass(frozen=True)
class Job:
    """One attempt: what runs, as what, where, on which ports and GPUs. ``started`` in epoch seconds.

    ``secret``: what its tasks know each other by, where the strategy has use for it.
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
