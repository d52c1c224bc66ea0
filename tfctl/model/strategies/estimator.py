"""tf.estimator.train_and_evaluate (TensorFlow up to 2.15): a chief or master, workers, ps and a separate evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfctl.model.strategies.base import Counts, FirstJob, Refusal, RoleRule, Strategy, without_evaluator
from tfctl.model.task import TaskName

if TYPE_CHECKING:
    from tfctl.model.stacks import Stack


def deciders(counts: Counts) -> tuple[TaskName, ...]:
    return (("master", 0),) if counts.get("master") else (("chief", 0),)


def refuse(counts: Counts) -> Refusal | None:
    """Refuse what RunConfig rejects, and workers without a ps, which would wait 2 h (estimator's run_config.py)."""
    chief, master = counts.get("chief", 0), counts.get("master", 0)
    if chief and master:
        return Refusal("chief and master are two names for the same task", "keep one of them")
    if not chief and not master:
        return Refusal("estimator needs a chief (or a master): it initialises and saves", "add `chief: 1`")
    if master and counts.get("evaluator"):
        return Refusal(
            "a master evaluates by itself, and tf.estimator refuses an evaluator beside it",
            "remove the evaluator, or write `chief` instead of `master`",
        )
    if counts.get("worker") and not counts.get("ps"):
        return Refusal(
            "without a ps each worker has its own variables, and waits for the chief to initialise them",
            "add `ps: 1`, or remove the workers; if RunConfig has a train_distribute, use "
            "`strategy: multi_worker_mirrored`",
        )
    return None


def lacking(stack: Stack) -> str:
    gone = stack.release("tensorflow") >= (2, 16)
    return f"has TensorFlow {stack.tensorflow}, but tf.estimator was removed in 2.16" if gone else ""


STRATEGY = Strategy(
    name="estimator",
    roles={
        "chief": RoleRule(0, 1, gpu=True),
        "master": RoleRule(0, 1, gpu=True),
        "worker": RoleRule(gpu=True, leaves=True),
        "ps": RoleRule(serves=True, vital="first"),
        "evaluator": RoleRule(0, 1),
    },
    first_job=FirstJob(
        "tf.estimator with a parameter server", "digits-estimator", ("chief: 1", "ps: 1", "worker: 1", "evaluator: 1")
    ),
    deciders=deciders,
    # RunConfig requires a chief in the evaluator's cluster too, and the evaluator in no cluster.
    cluster_of=without_evaluator,
    refuse=refuse,
    lacking=lacking,
    grace=180,  # as tf1_ps
    shared_output=True,
    why_shared="every task reads and writes model_dir",
)
