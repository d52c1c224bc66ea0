"""The order in which `provision` works on the hosts: a canary first, then batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Hosts in the canary if the inventory does not set tfctl_canary, and the number of hosts up to which there is none.
CANARY = 1
NO_CANARY_UP_TO = 4
#: Hosts in a batch if the inventory does not set tfctl_batch.
BATCH = 50


@dataclass(frozen=True)
class Order:
    """``canary``: hosts to begin with, 0 for none, or None for the default; ``batch``: hosts in each batch after it."""

    canary: int | None = None
    batch: int = BATCH

    def serial(self, hosts: int) -> list[int]:
        """Return Ansible's `serial` for so many hosts: the size of the canary, if there is one, and of each batch."""
        canary = self.canary
        if canary is None:
            canary = CANARY if hosts > NO_CANARY_UP_TO else 0
        return [canary, self.batch] if canary else [self.batch]


def order(canary: object = "", batch: object = "") -> Order:
    """Return the order that the inventory's values ask for. "" stands for a variable that is not set.

    Raises ValueError, with a sentence that names the variable, for a value that is not a number of hosts.
    """
    return Order(
        None if canary == "" else _hosts("tfctl_canary", canary, 0),
        BATCH if batch == "" else _hosts("tfctl_batch", batch, 1),
    )


def batch_name(index: int, hosts: int, serial: Sequence[int]) -> str:
    """Return what the batch with this index, from 0, is called, or "" if all ``hosts`` are one batch."""
    canary = serial[0] if len(serial) > 1 else 0
    batches = -(-(hosts - canary) // serial[-1])
    if canary and index == 0 and batches > 0:
        return "the canary"
    return f"batch {index if canary else index + 1} of {batches}" if canary or batches > 1 else ""


def _hosts(name: str, value: object, least: int) -> int:
    """Return a number of hosts, which an inventory in INI format may give as text."""
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or int(text) < least:
        raise ValueError(f"{name}: {value!r} is not a number of hosts from {least} up")
    return int(text)
