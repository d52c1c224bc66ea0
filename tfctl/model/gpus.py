"""Who computes on which GPUs of its host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tfctl.errors import BadFile, Busy
from tfctl.model.host import Site
from tfctl.model.job import Layout, Slot, Task
from tfctl.model.strategies.base import Strategy


def share(layout: Layout, sites: Mapping[str, Site]) -> dict[tuple[str, int], tuple[str, ...] | None]:
    """Disjoint: first to those who say how many, then the rest in equal shares to those who compute and do not say."""
    given: dict[tuple[str, int], tuple[str, ...] | None] = {}
    by_host: dict[str, list[Slot]] = defaultdict(list)
    for slot in layout.slots:
        by_host[slot.host.name].append(slot)
    for name, slots in by_host.items():
        asked = sum(slot.gpus or 0 for slot in slots)
        known = sites[name].gpus
        free = list(known) if known is not None else [f"gpu-{number}" for number in range(asked)]
        if asked > len(free):
            raise _no_gpu(f"{name}: {asked} GPUs wanted, {len(free)} free", sites[name])
        for slot in slots:
            if slot.gpus is not None:
                given[slot.role, slot.index], free = tuple(free[: slot.gpus]), free[slot.gpus :]
        open_slots = [slot for slot in slots if slot.gpus is None]
        computing = [slot for slot in open_slots if _computes(layout.strategy, slot.role)]
        each = len(free) // len(computing) if computing else 0
        if computing and not each and (known or sites[name].owners):
            raise _no_gpu(f"{name}: {len(computing)} tasks that compute, {len(free)} GPUs free", sites[name])
        for slot in open_slots:
            if slot not in computing:
                given[slot.role, slot.index] = ()
            elif not free:
                given[slot.role, slot.index] = None
            else:
                given[slot.role, slot.index], free = tuple(free[:each]), free[each:]
    return given


def check_equal(layout: Layout, tasks: Iterable[Task]) -> None:
    """Raises BadFile where tasks that compute have GPUs in different numbers, and the strategy cannot have that."""
    if not layout.strategy.equal_gpus:
        return
    having = {len(task.gpus or ()): task for task in tasks if _computes(layout.strategy, task.role)}
    if len(having) > 1:
        (most, one), (least, other) = max(having.items()), min(having.items())
        raise BadFile(
            f"{one} on {one.host.name} has {most} GPUs and {other} on {other.host.name} {least}; "
            f"{layout.strategy.name} needs as many in each",
            "say `gpus:` for these roles",
        )


def _no_gpu(message: str, site: Site) -> Busy:
    holders = f"; the others are held by {', '.join(dict.fromkeys(site.owners))}" if site.owners else ""
    return Busy(message + holders, "say `gpus:` for each role (0: none), spread the tasks, or wait for those that run")


def _computes(strategy: Strategy, role: str) -> bool:
    rule = strategy.rule(role)
    return rule is not None and rule.gpu
