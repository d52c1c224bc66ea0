"""Resolve when a job is done and how its tasks end, from the job file's policy and, where it has gaps, the strategy."""

from __future__ import annotations

from dataclasses import dataclass

from tfctl.errors import BadFile
from tfctl.model.jobfile import Policy
from tfctl.model.strategies.base import Counts, Strategy
from tfctl.model.task import TaskName

#: Restarts per task under `on_failure: restart`, if the strategy has none of its own.
_RESTARTS = 3


@dataclass(frozen=True)
class Rules:
    """What job file and strategy say together.

    The job succeeds when all ``deciders`` have. It fails when a decider, or every task of one group in ``vital``, has
    failed for good: after ``max_restarts`` restarts. The tasks of the roles in ``leaves`` end by themselves soon after
    the deciders. ``grace``: seconds between SIGTERM and SIGKILL.
    """

    deciders: tuple[TaskName, ...]
    vital: tuple[tuple[TaskName, ...], ...]
    leaves: tuple[str, ...]
    max_restarts: int
    grace: int


def resolve(policy: Policy, strategy: Strategy, counts: Counts) -> Rules:
    """Return the rules of a job. Raise BadFile if `success` names tasks that the job lacks, or that never end."""
    return Rules(
        deciders=_deciders(policy, strategy, counts),
        vital=_vital(policy, strategy, counts),
        leaves=tuple(role for role in counts if (rule := strategy.rule(role)) and rule.leaves),
        max_restarts=_max_restarts(policy, strategy),
        grace=policy.grace or strategy.grace,
    )


def _deciders(policy: Policy, strategy: Strategy, counts: Counts) -> tuple[TaskName, ...]:
    chiefs = [role for role in ("chief", "master") if role in counts]
    match policy.success:
        case "auto":
            found = strategy.deciders(counts)
        case "chief":
            found = tuple((role, 0) for role in chiefs)
        case "worker0":
            found = (("worker", 0),) if "worker" in counts else ()
        case "all_workers":
            found = tuple((role, index) for role in [*chiefs, "worker"] for index in range(counts.get(role, 0)))
    if not found:
        raise BadFile(f"policy/success: {policy.success}, but the job has no such task")
    endless = [role for role, _ in found if (rule := strategy.rule(role)) and rule.serves]
    if endless:
        raise BadFile(
            f"policy/success: {policy.success}, but a {endless[0]} of {strategy.name} runs until it is stopped",
            "remove `success:`",
        )
    return found


def _vital(policy: Policy, strategy: Strategy, counts: Counts) -> tuple[tuple[TaskName, ...], ...]:
    groups: list[tuple[TaskName, ...]] = []
    for role, count in counts.items():
        rule, tasks = strategy.rule(role), tuple((role, index) for index in range(count))
        if policy.on_failure == "fail" or (rule and rule.vital == "first"):
            groups += [(task,) for task in tasks]
        elif rule and rule.vital == "last":
            groups.append(tasks)
    return tuple(groups)


def _max_restarts(policy: Policy, strategy: Strategy) -> int:
    if policy.on_failure == "fail":
        return 0
    if policy.max_restarts is not None:
        return policy.max_restarts
    return strategy.restarts or (_RESTARTS if policy.on_failure == "restart" else 0)
