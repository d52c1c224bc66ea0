"""The tasks' units on this host, and the holders of its ports and GPUs."""

from __future__ import annotations

import re
from typing import NamedTuple

from . import book, names, reserve, states, unitfile
from .world import World

_UNIT = re.compile(rf"tfctl-({names.JOB.pattern})-({names.ROLE.pattern})-(0|[1-9][0-9]{{0,6}})\.service")


class Placed(NamedTuple):
    """A unit file of tfctl, and systemd's properties of that unit."""

    unit: str
    job: str
    task: tuple[str, int]
    run: str
    ports: tuple[int, ...]
    gpus: tuple[str, ...]
    shown: dict[str, str]

    @property
    def live(self) -> bool:
        return states.is_live(self.shown)

    def __str__(self) -> str:
        return f"job {self.job}, task {names.task(*self.task)}"


def units(world: World, job: str | None = None) -> list[Placed]:
    """Return the units here, of one job or of all. Calls systemctl once. Raises Refused."""
    directory = world.at(names.UNITS)
    found = {}
    for name in sorted(book.listing(directory)):
        parts = _UNIT.fullmatch(name)
        if parts and job in (None, parts.group(1)):
            try:
                found[name] = (tuple(parts.groups()), unitfile.facts((directory / name).read_text("utf-8", "replace")))
            except OSError:
                continue
    shown = world.show(list(found)) if found else {}
    return [_placed(unit, shown[unit], parts, facts) for unit, (parts, facts) in found.items()]


def without_file(world: World, job: str, tasks: list[tuple[str, int]]) -> list[Placed]:
    """Return systemd's view of the units of these tasks, whose unit files are missing. Raises Refused."""
    wanted = {names.unit(job, *task): task for task in tasks}
    shown = world.show(list(wanted)) if wanted else {}
    return [Placed(unit, job, task, "", (), (), shown[unit]) for unit, task in wanted.items()]


class Held(NamedTuple):
    """The holder, in words, of each port and of each GPU's UUID. ``starting``: the jobs of starts in progress."""

    ports: dict[int, str]
    gpus: dict[str, str]
    starting: set[str]


def held(world: World, known: list[Placed] | None = None) -> Held:
    """Return what live units and starts in progress hold. ``known``: all units, if already read. Raises Refused."""
    found = Held({}, {}, set())
    for unit in units(world) if known is None else known:
        if unit.live:
            found.ports.update(dict.fromkeys(unit.ports, str(unit)))
            found.gpus.update(dict.fromkeys(unit.gpus, str(unit)))
    for one in reserve.live(world):
        found.starting.add(one.job)
        text = f"job {one.job}, which is being started"
        for port in one.ports:
            found.ports.setdefault(port, text)
        for gpu in one.gpus:
            found.gpus.setdefault(gpu, text)
    return found


def _placed(unit: str, shown: dict[str, str], parts: tuple[str, ...], facts: dict[str, str]) -> Placed:
    job, role, index = parts
    ports = tuple(int(port) for port in facts.get("ports", "").split())
    return Placed(
        unit, job, (role, int(index)), facts.get("run", ""), ports, tuple(facts.get("gpus", "").split()), shown
    )
