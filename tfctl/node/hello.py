"""The node's description of itself, sent before a plan is made. No lock is held, so it may be outdated by then."""

from __future__ import annotations

import time
from collections.abc import Collection

from . import fields, gpus, jobstore, names, reservations, sockets
from .network import Lookup, Lookups, is_loopback
from .system import System
from .wire import Hello, StartRequest, TaskName

_COMPLETE = f"*/{names.REQUIREMENTS_MARKER}"


def hello(system: System, request: StartRequest, code: bool, restartable: tuple[TaskName, ...]) -> Hello:
    """Return the answer to a start request. ``code``: whether that code is here. Raises RequestRefused."""
    wanted = {*_port_range(*request.ports), *(_port_range(*request.guard_ports) if request.guard_ports else ())}
    held = reservations.held(system)
    seen = look(system, held)
    installed = stacks(system)
    return Hello(
        highest=jobstore.highest(system, request.job),
        ports=_ports(wanted, held.ports),
        names={name: _address(found) for name, found in Lookups(system.network, request.resolve).wait().items()},
        gpus=seen.devices,
        gpu_trouble=seen.trouble,
        code=code,
        restartable=restartable,
        horovod={stack: has_horovod(system, stack) for stack in installed},
        time=time.time(),
        stacks=installed,
        requirements=tuple(sorted(path.parent.name for path in system.at(names.REQUIREMENTS).glob(_COMPLETE))),
        packed=True,
        gpu_cards=seen.cards,
        missing_gpus=seen.missing,
        machine=system.machine(),
    )


def look(system: System, held: reservations.Held) -> gpus.Seen:
    """Return the host's GPUs, each with the job or the process that holds it."""
    seen = gpus.look(system)
    devices = tuple(gpu._replace(holder=held.gpus.get(gpu.uuid, gpu.holder)) for gpu in seen.devices)
    return seen._replace(devices=devices)


def stacks(system: System) -> dict[str, str]:
    """Return the installed stacks: each name with the environment that its link points to."""
    directory = system.at(names.STACKS)
    links = [directory / name for name in sorted(jobstore.listing(directory))]
    return {link.name: link.readlink().name for link in links if link.is_symlink() and link.is_dir()}


def has_horovod(system: System, stack: str) -> bool:
    """Return whether the stack's Python finds Horovod: as tfctl adds it, by a .pth file, or as a package of its own."""
    return any(system.at(names.stack_dir(stack)).glob("lib*/python3*/site-packages/*horovod*"))


def _port_range(low: int, high: int) -> range:
    """Return the ports from ``low`` to ``high``, both inclusive. Raises RequestRefused."""
    first = fields.number(low, "a port", 1, 65535)
    return range(first, fields.number(high, "a port", first, 65535) + 1)


def _ports(wanted: Collection[int], held: dict[int, str]) -> dict[int, str]:
    """Return the ports of the range that are not free, with their holders."""
    foreign = sockets.holders([port for port in wanted if port not in held and not sockets.is_free(port)])
    return {port: held.get(port) or foreign[port] for port in sorted(wanted) if port in held or port in foreign}


def _address(found: Lookup) -> str | None:
    """Return the first address that is not loopback."""
    return next((one for one in found.addresses if not is_loopback(one)), None)
