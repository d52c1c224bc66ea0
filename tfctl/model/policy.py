"""Resolve when a job is done and what happens then, from the job file, else from the strategy."""

from __future__ import annotations

from collections.abc import Callable

from tfctl.errors import BadFile
from tfctl.model.job import Policy
from tfctl.model.jobfile import JobFile
from tfctl.model.strategies.base import Counts, Name, Strategy


def policy(job: JobFile, strategy: Strategy, counts: Counts, place: str) -> Policy:
    """Fill the gaps of the job file's policy from the strategy. ``place`` names the file in errors. Raise BadFile."""
    asked = job.policy
    restarts = strategy.restarts if asked.max_restarts is None else asked.max_restarts
    if asked.on_failure == "fail":
        restarts = 0
    elif asked.on_failure == "restart" and asked.max_restarts is None:
        restarts = restarts or 3
    return Policy(
        deciders=_deciders(asked.success, strategy, counts, place),
        vital=_each(counts) if asked.on_failure == "fail" else _vital(strategy, counts),
        leaves=tuple(role for role in counts if (rule := strategy.rule(role)) and rule.leaves),
        clean=asked.clean,
        max_restarts=restarts,
        deadline=asked.deadline,
        grace=asked.grace or strategy.grace,
        drain=asked.drain,
    )


def _deciders(success: str, strategy: Strategy, counts: Counts, place: str) -> tuple[Name, ...]:
    wanted: Callable[[], tuple[Name, ...]] = {
        "auto": lambda: strategy.deciders(counts),
        "chief": lambda: tuple((role, 0) for role in ("chief", "master") if role in counts),
        "worker0": lambda: (("worker", 0),) if "worker" in counts else (),
        "all_workers": lambda: tuple(
            (role, index) for role in ("chief", "master", "worker") for index in range(counts.get(role, 0))
        ),
    }[success]
    found = wanted()
    if not found:
        raise BadFile(f"{place}: policy/success: {success}, but the job has no such task")
    endless = [role for role, _ in found if (rule := strategy.rule(role)) and rule.serves]
    if endless:
        raise BadFile(
            f"{place}: policy/success: {success}, but a {endless[0]} of {strategy.name} runs until it is stopped",
            "remove `success:`",
        )
    return found


def _each(counts: Counts) -> tuple[tuple[Name, ...], ...]:
    return tuple(((role, index),) for role, count in counts.items() for index in range(count))


def _vital(strategy: Strategy, counts: Counts) -> tuple[tuple[Name, ...], ...]:
    groups: list[tuple[Name, ...]] = []
    for role, count in counts.items():
        rule, tasks = strategy.rule(role), tuple((role, index) for index in range(count))
        if rule and rule.vital:
            groups += [tasks] if rule.vital == "last" else [(task,) for task in tasks]
    return tuple(groups)
