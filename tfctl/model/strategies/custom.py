"""Any command in any roles, with one dense TF_CONFIG: every role, for every task."""

from __future__ import annotations

from tfctl.model.strategies.base import Counts, Name, RoleRule, Strategy, whole

_SERVING = ("ps", "evaluator")


def deciders(counts: Counts) -> tuple[Name, ...]:
    """Chief or master where there is one, else every task but ps and evaluator (or those, where there is no other)."""
    for role in ("chief", "master"):
        if role in counts:
            return tuple((role, index) for index in range(counts[role]))
    deciding = [role for role in counts if role not in _SERVING] or list(counts)
    return tuple((role, index) for role in deciding for index in range(counts[role]))


STRATEGY = Strategy(
    name="custom",
    # The first failure stops the rest: what the roles are to each other is not known.
    roles={"ps": RoleRule(vital="first"), "evaluator": RoleRule(vital="first")},
    other=RoleRule(gpu=True, vital="first"),
    deciders=deciders,
    cluster_of=whole,
    restarts=0,
)
