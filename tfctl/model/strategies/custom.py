"""Any command in any roles. Every task's TF_CONFIG holds the whole cluster."""

from __future__ import annotations

from tfctl.model.strategies.base import Counts, FirstJob, RoleRule, Strategy, whole
from tfctl.model.task import TaskName

_SERVING = ("ps", "evaluator")


def deciders(counts: Counts) -> tuple[TaskName, ...]:
    """Return the chief or master if there is one, else every task but ps and evaluator, else every task."""
    for role in ("chief", "master"):
        if role in counts:
            return tuple((role, index) for index in range(counts[role]))
    deciding = [role for role in counts if role not in _SERVING] or list(counts)
    return tuple((role, index) for role in deciding for index in range(counts[role]))


STRATEGY = Strategy(
    name="custom",
    # The first failure fails the job: how the roles depend on each other is unknown.
    roles={"ps": RoleRule(vital="first"), "evaluator": RoleRule(vital="first")},
    other=RoleRule(gpu=True, vital="first"),
    first_job=FirstJob(
        "three processes that try different learning rates",
        "digits-custom",
        ("worker: 3                # {index} is 0, 1 and 2",),
        "python train.py --rate {index}",
    ),
    deciders=deciders,
    cluster_of=whole,
    independent=True,  # the command may be one that needs no other task
    restarts=0,
)
