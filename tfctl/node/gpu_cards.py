"""The settings and readings of the NVIDIA cards of this host, according to nvidia-smi. Only `tfctl nodes` asks."""

from __future__ import annotations

import re

from . import gpus
from .session import Refused
from .system import System, run
from .wire import Card

#: nvidia-smi reports a field that the card does not have as [N/A]. One that it does not know, it rejects: old drivers
#: lack fields that are not asked for here.
_FIELDS = (
    "uuid", "persistence_mode", "ecc.mode.current", "ecc.errors.uncorrected.volatile.total", "clocks.current.sm",
    "clocks.max.sm", "temperature.gpu", "power.draw", "mig.mode.current", "name",
)  # fmt: skip
_NUMBER = re.compile(r"(\d{1,9})(?:\.\d+)?(?: (?:MHz|W|C))?")


def look(system: System) -> tuple[Card, ...]:
    """Return the cards, in the order of nvidia-smi; none if it gives no complete answer."""
    fields: tuple[str, ...] = _FIELDS
    try:
        done = run([*system.nvidia_smi, *gpus.cards_query(fields)], system.nvidia_smi_timeout)
        if "not a valid field" in done.output:  # before driver 450
            fields = tuple(field for field in fields if not field.startswith("mig."))
            done = run([*system.nvidia_smi, *gpus.cards_query(fields)], system.nvidia_smi_timeout)
        mig = "Enabled" in done.output and run([*system.nvidia_smi, "-L"], system.nvidia_smi_timeout).output
    except Refused:
        return ()
    layouts = gpus.parse_instances(mig or "")
    found = []
    for line in done.output.splitlines():
        cells = [cell.strip() for cell in line.split(",", len(fields) - 1)]
        if done.status == 0 and len(cells) == len(fields):
            of = dict(zip(fields, cells))
            profiles = tuple(instance.profile for instance in layouts.get(of["uuid"], ()))
            found.append(
                Card(
                    uuid=of["uuid"],
                    name=of["name"],
                    persistence=_enabled(of["persistence_mode"]),
                    ecc=_enabled(of["ecc.mode.current"]),
                    ecc_errors=_number(of["ecc.errors.uncorrected.volatile.total"]),
                    mhz=_number(of["clocks.current.sm"]),
                    max_mhz=_number(of["clocks.max.sm"]),
                    celsius=_number(of["temperature.gpu"]),
                    watts=_number(of["power.draw"]),
                    mig=profiles if _enabled(of.get("mig.mode.current", "")) else None,
                )
            )
    return tuple(found)


def _enabled(text: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(text)


def _number(text: str) -> int | None:
    match = _NUMBER.fullmatch(text)
    return int(match.group(1)) if match else None
