"""The settings and readings of the NVIDIA cards of this host, according to nvidia-smi. Only `tfctl nodes` asks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from . import gpus
from .system import System
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
    try:
        fields, status, text = gpus.ask_cards(system, _FIELDS)
        if status != 0:
            return ()
        cards = [cells for cells, _ in gpus.rows(text, fields)]
        divided = any(_enabled(cells.get("mig.mode.current", "")) for cells in cards)
        layouts = gpus.parse_instances(gpus.ask(system, ("-L",))[1]) if divided else {}
    except gpus.Sick:
        return ()
    return tuple(_card(cells, layouts.get(cells["uuid"], ())) for cells in cards)


def _card(cells: Mapping[str, str], instances: Sequence[gpus.Instance]) -> Card:
    divided = _enabled(cells.get("mig.mode.current", ""))
    return Card(
        uuid=cells["uuid"],
        name=cells["name"],
        persistence=_enabled(cells["persistence_mode"]),
        ecc=_enabled(cells["ecc.mode.current"]),
        ecc_errors=_number(cells["ecc.errors.uncorrected.volatile.total"]),
        mhz=_number(cells["clocks.current.sm"]),
        max_mhz=_number(cells["clocks.max.sm"]),
        celsius=_number(cells["temperature.gpu"]),
        watts=_number(cells["power.draw"]),
        mig=tuple(instance.profile for instance in instances) if divided else None,
    )


def _enabled(text: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(text)


def _number(text: str) -> int | None:
    match = _NUMBER.fullmatch(text)
    return int(match.group(1)) if match else None
