"""Share each host's GPUs among its tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tfctl.errors import BadFile, Busy, PreflightFailed, Taken, TfctlError
from tfctl.model.host import Host, Site
from tfctl.node.wire import MissingGpu, TaskName
from tfctl.wording import QUEUE, counted

if TYPE_CHECKING:
    from tfctl.model.job import Layout
    from tfctl.model.strategies.base import Strategy
    from tfctl.model.task import Slot

#: The remedy for a GPU that nvidia-smi does not show.
RESTART = (
    "restart the host. If the GPU does not return, have the card repaired; tfctl_gpus_expected in the inventory "
    "accepts the host with fewer"
)
#: Each task's GPUs; None for a computing task on a host without GPUs.
Shares = dict[TaskName, tuple[str, ...] | None]


def share(layout: Layout, sites: Mapping[str, Site]) -> Shares:
    """Give each task its own GPUs: first those that ask for a number, then equal shares to other computing tasks.

    A process can compute on only one MIG instance. So a task that asks for several devices gets whole GPUs, and while
    instances are left, a task that asks for no number gets one device.

    Raise Busy or PreflightFailed, and BadFile if the strategy needs equal numbers and the tasks' numbers differ.
    """
    shares: Shares = {}
    by_host: dict[str, list[Slot]] = defaultdict(list)
    for slot in layout.slots:
        by_host[slot.host.name].append(slot)
    for name, slots in by_host.items():
        asked = sum(slot.gpus or 0 for slot in slots)
        known = sites[name].gpus
        free = list(known) if known is not None else [f"gpu-{number}" for number in range(asked)]
        if asked > len(free):
            raise _no_gpu(f"{name}: {counted(asked, 'GPU')} requested, {len(free)} free", sites[name], asked)
        shares |= _as_asked(slots, free)
        shares |= _in_equal_parts(layout.strategy, slots, free, sites[name])
    if layout.strategy.equal_gpus:
        _check_equal(layout, shares)
    return shares


def is_instance(gpu: str) -> bool:
    """Return whether this is a part of a card (a MIG instance)."""
    return gpu.startswith("MIG-")


def _as_asked(slots: Iterable[Slot], free: list[str]) -> Shares:
    """Return the GPUs of tasks that ask for a number, taking them from ``free``."""
    shares: Shares = {}
    asking = [(slot, slot.gpus) for slot in slots if slot.gpus is not None]
    if any(map(is_instance, free)):  # serve tasks that want several whole GPUs first
        asking.sort(key=lambda each: each[1] < 2)
    for slot, count in asking:
        fitting = [gpu for gpu in free if count < 2 or not is_instance(gpu)][:count]
        if len(fitting) < count:
            raise Busy(
                f"{slot.host.name}: {slot} requests {count} GPUs, and {len(fitting)} whole ones are "
                "free; a process can compute on one MIG instance, and no more",
                f"set `gpus: 1` for {slot.role}, and give it that many more tasks",
            )
        shares[slot.name] = tuple(fitting)
        free[:] = [gpu for gpu in free if gpu not in fitting]
    return shares


def _in_equal_parts(strategy: Strategy, slots: Iterable[Slot], free: list[str], site: Site) -> Shares:
    """Return the GPUs of the tasks that ask for no number, out of ``free``."""
    silent = [slot for slot in slots if slot.gpus is None]
    computing = [slot for slot in silent if _computes(strategy, slot)]
    each = len(free) // len(computing) if computing else 0
    if computing and not each and (site.gpus or site.owners or site.gpu_trouble):
        message = (
            f"{computing[0].host.name}: {counted(len(computing), 'task that computes', 'tasks that compute')}, "
            f"{counted(len(free), 'GPU')} free"
        )
        raise _no_gpu(message, site, len(computing))
    if any(map(is_instance, free)):
        each = min(each, 1)
    shares: Shares = {slot.name: () for slot in silent}
    for number, slot in enumerate(computing):
        shares[slot.name] = tuple(free[number * each : (number + 1) * each]) if each else None
    return shares


def _check_equal(layout: Layout, shares: Shares) -> None:
    having = {len(shares[slot.name] or ()): slot for slot in layout.slots if _computes(layout.strategy, slot)}
    if len(having) > 1:
        (most, one), (least, other) = max(having.items()), min(having.items())
        raise BadFile(
            f"{one} on {one.host.name} has {most} GPUs and {other} on {other.host.name} {least}; "
            f"{layout.strategy.name} needs the same number in each",
            "set `gpus:` for these roles",
        )


def missing_gpus(host: Host, cards: int | None, missing: Sequence[MissingGpu]) -> str:
    """Return a sentence about the GPUs that a host should have and does not show, or "".

    ``cards``: how many nvidia-smi lists, None if it was not asked.
    """
    if not missing_count(host, cards, missing):
        return ""
    named = [f"{each.bus}" + (f" ({each.reason})" if each.reason else "") for each in missing]
    lost = f"nvidia-smi does not show the {'GPU' if len(named) == 1 else 'GPUs'} at {', '.join(named)}" if named else ""
    if not host.gpus_expected:
        return f"{host.name}: {lost}"
    shown = f"{host.name}: tfctl_gpus_expected is {host.gpus_expected}, and nvidia-smi shows {cards}"
    return f"{shown}; {lost}" if lost else shown


def missing_count(host: Host, cards: int | None, missing: Sequence[MissingGpu]) -> int:
    """Return how many GPUs a host should have and does not show. The arguments are those of `missing_gpus`."""
    if not host.gpus_expected:
        return len(missing)
    return 0 if cards is None else max(0, host.gpus_expected - cards)


def _no_gpu(message: str, site: Site, wanted: int) -> TfctlError:
    if site.missing:
        message = f"{message}; {site.missing}"
    if site.gpu_trouble:
        return PreflightFailed(site.gpu_trouble.message, f"{site.gpu_trouble.remedy}; `gpus: 0` computes without GPUs")
    holders = f"; the others are held by {', '.join(dict.fromkeys(site.owners))}" if site.owners else ""
    change = "set `gpus:` for each role (0: none), spread the tasks"
    if wanted > len(site.gpus or ()) + len(site.owners):
        return Busy(message + holders, f"{change}, or use hosts with more GPUs")
    return Taken(message + holders, f"{change}, or {QUEUE}")


def _computes(strategy: Strategy, slot: Slot) -> bool:
    rule = strategy.rule(slot.role)
    return rule is not None and rule.gpu
