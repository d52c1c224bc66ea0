"""Share each host's GPUs among its tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tfctl.errors import BadFile, Busy, PreflightFailed, TfctlError
from tfctl.model.host import Site
from tfctl.model.job import Layout, Slot, Task
from tfctl.model.strategies.base import Strategy
from tfctl.wording import counted


def share(layout: Layout, sites: Mapping[str, Site]) -> dict[tuple[str, int], tuple[str, ...] | None]:
    """Give each task its own GPUs: first those that ask for a number, then equal shares to other computing tasks.

    A process can compute on only one MIG instance. So a task that asks for several devices gets whole GPUs, and while
    instances are left, a task that asks for no number gets one device. Raise Busy or PreflightFailed.
    """
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
        given |= _as_said(slots, free)
        given |= _in_equal_shares(layout.strategy, slots, free, sites[name])
    return given


def check_equal(layout: Layout, tasks: Iterable[Task]) -> None:
    """Raise BadFile if the strategy needs the same number of GPUs in all computing tasks, and they differ."""
    if not layout.strategy.equal_gpus:
        return
    having = {len(task.gpus or ()): task for task in tasks if _computes(layout.strategy, task.role)}
    if len(having) > 1:
        (most, one), (least, other) = max(having.items()), min(having.items())
        raise BadFile(
            f"{one} on {one.host.name} has {most} GPUs and {other} on {other.host.name} {least}; "
            f"{layout.strategy.name} needs the same number in each",
            "set `gpus:` for these roles",
        )


def _as_said(slots: Iterable[Slot], free: list[str]) -> dict[tuple[str, int], tuple[str, ...]]:
    """Return the GPUs of tasks that ask for a number, taking them from ``free``."""
    given = {}
    said = [(slot, slot.gpus) for slot in slots if slot.gpus is not None]
    if any(map(is_instance, free)):  # serve tasks that want several whole GPUs first
        said.sort(key=lambda each: each[1] < 2)
    for slot, count in said:
        fitting = [gpu for gpu in free if count < 2 or not is_instance(gpu)][:count]
        if len(fitting) < count:
            raise Busy(
                f"{slot.host.name}: {slot.role}/{slot.index} wants {count} GPUs, and {len(fitting)} whole ones are "
                "free; a process can compute on one MIG instance, and no more",
                f"set `gpus: 1` for {slot.role}, and give it that many more tasks",
            )
        given[slot.role, slot.index] = tuple(fitting)
        free[:] = [gpu for gpu in free if gpu not in fitting]
    return given


def _in_equal_shares(
    strategy: Strategy, slots: Iterable[Slot], free: list[str], site: Site
) -> dict[tuple[str, int], tuple[str, ...] | None]:
    """Return the GPUs of the other tasks, out of ``free``; None for computing tasks on a host without GPUs."""
    silent = [slot for slot in slots if slot.gpus is None]
    computing = [slot for slot in silent if _computes(strategy, slot.role)]
    each = len(free) // len(computing) if computing else 0
    if computing and not each and (site.gpus or site.owners or site.gpu_trouble):
        message = (
            f"{computing[0].host.name}: {counted(len(computing), 'task that computes', 'tasks that compute')}, "
            f"{counted(len(free), 'GPU')} free"
        )
        raise _no_gpu(message, site)
    if any(map(is_instance, free)):
        each = min(each, 1)
    given: dict[tuple[str, int], tuple[str, ...] | None] = {(slot.role, slot.index): () for slot in silent}
    for number, slot in enumerate(computing):
        given[slot.role, slot.index] = tuple(free[number * each : (number + 1) * each]) if each else None
    return given


def is_instance(gpu: str) -> bool:
    """Return whether this is a part of a card (a MIG instance)."""
    return gpu.startswith("MIG-")


def _no_gpu(message: str, site: Site) -> TfctlError:
    if site.gpu_trouble:
        return PreflightFailed(site.gpu_trouble.message, f"{site.gpu_trouble.remedy}; `gpus: 0` computes without GPUs")
    holders = f"; the others are held by {', '.join(dict.fromkeys(site.owners))}" if site.owners else ""
    return Busy(message + holders, "set `gpus:` for each role (0: none), spread the tasks, or wait for other jobs")


def _computes(strategy: Strategy, role: str) -> bool:
    rule = strategy.rule(role)
    return rule is not None and rule.gpu
