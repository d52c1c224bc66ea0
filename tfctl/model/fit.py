"""Fit a strategy to the stacks of its tasks. A stack that tfctl does not know is not checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfctl.errors import BadFile
from tfctl.model.stacks import Stack
from tfctl.model.strategies.base import Strategy
from tfctl.model.task import Slot
from tfctl.model.versions import require_same


def fit(strategy: Strategy, slots: Sequence[Slot], known: Mapping[str, Stack]) -> tuple[list[Slot], tuple[str, ...]]:
    """Return the slots with the variables that the strategy needs on their stacks, and sentences for the user.

    The job's own variables take precedence. Raise BadFile if a stack lacks what the strategy needs, and if tasks of one
    cluster have different versions of TensorFlow.
    """
    fitted, notes = [], []
    for slot in slots:
        stack = known.get(slot.stack)
        if stack is None:
            fitted.append(slot)
            continue
        _check(strategy, slot.stack, known)
        change = strategy.adapt(stack)
        fitted.append(replace(slot, env={**change.environment, **slot.env}))
        notes += [
            f"{name}={value} is set: {strategy.name} {change.reason}"
            for name, value in change.environment.items()
            if slot.env.get(name, value) == value
        ]
        notes += [f"{strategy.name}: {change.warning}"] if change.warning else []
    notes += require_same(strategy, slots, {name: stack.tensorflow for name, stack in known.items()})
    return fitted, tuple(dict.fromkeys(notes))


def _check(strategy: Strategy, stack: str, known: Mapping[str, Stack]) -> None:
    lacking = strategy.lacking(known[stack])
    if lacking:
        fitting = ", ".join(name for name, other in known.items() if not strategy.lacking(other))
        instead = f", or {strategy.instead}" if strategy.instead else ""
        raise BadFile(f"strategy {strategy.name}: stack {stack} {lacking}", f"use one of {fitting}{instead}")
