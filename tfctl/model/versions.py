"""Check that the tasks of one cluster have the same TensorFlow. It does not support clusters of several versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tfctl.errors import BadFile
from tfctl.model.strategies.base import Strategy
from tfctl.model.task import Slot
from tfctl.wording import listed


def require_same(strategy: Strategy, slots: Sequence[Slot], versions: Mapping[str, str | None]) -> list[str]:
    """Return a sentence for each cluster of which it is not known whether its tasks have the same TensorFlow.

    ``versions``: the TensorFlow of stacks, by name. Raise BadFile if two tasks of a cluster have different ones.
    """
    notes = []
    for cluster in clusters(strategy, slots):
        if found := different([(slot, versions.get(slot.stack)) for slot in cluster]):
            raise BadFile(
                f"the tasks of one cluster have different versions of TensorFlow: {found}",
                "set one `stack:` in the job file",
            )
        stacks = {slot.stack: slot for slot in reversed(cluster)}
        if len(stacks) > 1 and not all(map(versions.get, stacks)):
            names = listed([f"{stack} ({slot} on {slot.host.name})" for stack, slot in reversed(stacks.items())])
            notes.append(
                f"the tasks of one cluster have the stacks {names}: all of them need the same version of TensorFlow"
            )
    return notes


def different(cluster: Sequence[tuple[Slot, str | None]]) -> str:
    """Return the versions of a cluster's tasks with a task of each, or "" if all that are known are equal."""
    first = {version: slot for slot, version in reversed(cluster) if version}
    if len(first) < 2:
        return ""
    return listed(
        [f"{version} ({slot} on {slot.host.name}, stack {slot.stack})" for version, slot in reversed(first.items())]
    )


def clusters(strategy: Strategy, slots: Sequence[Slot]) -> Iterator[tuple[Slot, ...]]:
    """Yield the tasks of each cluster. Those of a strategy without TF_CONFIG form one, too.

    A strategy that runs any program has none that tfctl knows of.
    """
    if strategy.any_program:
        return
    every = dict.fromkeys((slot.role for slot in slots), ())
    seen = dict.fromkeys(frozenset(strategy.cluster_of(every, role) or every) for role in every)
    for roles in seen:
        yield tuple(slot for slot in slots if slot.role in roles)
