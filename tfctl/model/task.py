"""A task of a job: first with a host, then with a port and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfctl.model.host import Host
from tfctl.node import names
from tfctl.node.wire import TaskName as TaskName


@dataclass(frozen=True)
class Slot:
    """A task with a host, but no port or GPUs yet. ``gpus`` None means an equal share of the host's GPUs.

    ``memory``, ``cpus``: its limits (jobfile.Limits).
    """

    role: str
    index: int
    host: Host
    gpus: int | None
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    stack: str
    memory: str | None = None
    cpus: float | None = None

    @property
    def name(self) -> TaskName:
        return self.role, self.index

    def __str__(self) -> str:
        return names.task(self.role, self.index)


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
    def name(self) -> TaskName:
        return self.slot.name

    @property
    def host(self) -> Host:
        return self.slot.host

    @property
    def dial(self) -> str:
        """``address:port``, where the other tasks reach this one; an IPv6 address has brackets."""
        return names.endpoint(self.address, self.port)

    def __str__(self) -> str:
        return str(self.slot)
