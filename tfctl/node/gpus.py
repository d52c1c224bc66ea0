"""The NVIDIA GPUs of this host that a task can be given, and the processes that use them, according to nvidia-smi.

A GPU in MIG mode is not a device for tasks; its instances are, each with its own UUID.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import smi
from .talk import Refused
from .world import World, run

_NVIDIA = "0x10de"
_PATIENCE_S = 20.0


class Seen(NamedTuple):
    """``devices``: a list of GPU (tfctl.node.wire); ``trouble`` and ``remedy``: why GPUs present cannot be listed."""

    devices: list[dict[str, Any]]
    trouble: str = ""
    remedy: str = ""


def look(world: World) -> Seen:
    """Return all devices; each ``holder`` names a process that uses the device. Return none if nvidia-smi is missing,
    or if it fails and no NVIDIA card is on the PCI bus."""
    if not os.access(world.nvidia_smi[0], os.X_OK):
        return Seen([])
    try:
        return Seen(_devices(world))
    except smi.Sick as sick:
        return Seen([], sick.message, sick.remedy) if _on_the_bus(world) else Seen([])


def _devices(world: World) -> list[dict[str, Any]]:
    fields = smi.FIELDS
    status, text = _ask(world, smi.query(fields))
    if "not a valid field" in text:
        fields = smi.OLD_FIELDS
        status, text = _ask(world, smi.query(fields))
    smi.heed(status, text)
    cards = smi.cards(text, fields)
    users = smi.users(_ask(world, smi.USERS)[1])
    divided = [card for card in cards if card.mig]
    listed = smi.instances(_ask(world, ("-L",))[1]) if divided else {}
    places = smi.places(_ask(world, ("-q",))[1]) if any(card.uuid in users for card in divided) else {}
    found: list[dict[str, Any]] = []
    for card in cards:
        computing = users.get(card.uuid, [])
        if not card.mig:
            found.append(_device(len(found), card.uuid, card.name, card.memory, computing))
        for one in listed.get(card.uuid, ()) if card.mig else ():
            # A process whose instance is unknown may be on any of them.
            here = [user for user in computing if places.get((card.uuid, user.pid), one.number) == one.number]
            found.append(_device(len(found), one.uuid, f"{card.name} MIG {one.profile}", _memory(one.profile), here))
    return found


def _device(number: int, uuid: str, name: str, memory: int, users: Sequence[smi.User]) -> dict[str, Any]:
    holder = _who(users[0]) if users else ""
    return {"uuid": uuid, "index": number, "name": name, "memory_mib": memory, "holder": holder}


def _who(user: smi.User) -> str:
    """Describe a process, such as ``pid 812 (python) of alice``."""
    try:
        account = pwd.getpwuid(Path(f"/proc/{user.pid}").stat().st_uid).pw_name
    except (OSError, KeyError):
        return f"pid {user.pid or '?'} ({user.name})"
    return f"pid {user.pid} ({user.name}) of {account}"


def _memory(profile: str) -> int:
    """Return the MiB that a MIG profile such as 1g.10gb names, or 0."""
    size = re.search(r"(\d{1,4})gb", profile)
    return int(size.group(1)) * 1024 if size else 0


def _ask(world: World, words: tuple[str, ...]) -> tuple[int, str]:
    """Run nvidia-smi and return its exit status and all output. Raises Sick."""
    try:
        done = run([*world.nvidia_smi, *words], _PATIENCE_S)
    except Refused as refused:  # a sick driver hangs it
        raise smi.Sick(str(refused)) from None
    return done.status, f"{done.output}\n{done.errors}"


def _on_the_bus(world: World) -> bool:
    """Return whether there is an NVIDIA display controller (PCI class 03: VGA, or 3D as on most compute cards)."""
    for device in world.at("/sys/bus/pci/devices").glob("*"):
        try:
            if (device / "vendor").read_text().strip() == _NVIDIA and (device / "class").read_text()[:4] == "0x03":
                return True
        except OSError:
            continue
    return False
