"""The node's description of itself, sent before a plan is made. No lock is held, so it may be outdated by then."""

from __future__ import annotations

import re
import time
from collections.abc import Collection

from . import fields, gpus, jobstore, names, reservations, sockets
from .network import Lookup, Lookups, is_loopback
from .system import System
from .wire import Hello, StartRequest, TaskName

#: The directory with the metadata of TensorFlow, by whatever name its wheel has.
_TENSORFLOW = re.compile(
    r"tensorflow(?:_cpu|_gpu|_intel|_macos|_cpu_aws)?-(\d[\w.+!]*?)(?:-py[\d.]+)?\.(?:dist|egg)-info"
)
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
        outgoing=_outgoing(system, wanted),
        tensorflow={stack: _tensorflow(system, stack) for stack in installed},
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


def _tensorflow(system: System, stack: str) -> str | None:
    """Return the version of the stack's TensorFlow, or None if its packages do not say it."""
    found = [
        match.group(1)
        for path in system.at(names.stack_dir(stack)).glob("lib*/python3*/site-packages/tensorflow*-*info")
        for match in [_TENSORFLOW.fullmatch(path.name)]
        if match
    ]
    return found[0] if len(set(found)) == 1 else None


def _outgoing(system: System, wanted: Collection[int]) -> tuple[int, int] | None:
    """Return the first and the last port of the range from which the kernel takes those of outgoing connections, if it
    may take one that is wanted (ip(7)). It never takes ip_local_reserved_ports."""
    folder = system.at("/proc/sys/net/ipv4")
    try:
        first, last = map(int, (folder / "ip_local_port_range").read_text("ascii").split())
        reserved = (folder / "ip_local_reserved_ports").read_text("ascii").strip()
        kept: set[int] = set()
        for part in reserved.split(",") if reserved else ():
            low, _, high = part.partition("-")
            kept.update(range(int(low), int(high or low) + 1))
    except (OSError, ValueError):
        return None
    return (first, last) if any(first <= port <= last and port not in kept for port in wanted) else None


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
