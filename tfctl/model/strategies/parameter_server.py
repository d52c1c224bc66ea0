"""tf.distribute.ParameterServerStrategy (TF2): a chief coordinates, workers compute, ps hold the variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfctl.model.strategies.base import FirstJob, RoleRule, Strategy, evaluator_apart, with_keras_2

if TYPE_CHECKING:
    from tfctl.model.stacks import Stack


def lacking(stack: Stack) -> str:
    old = stack.release("tensorflow") < (2, 4)
    return f"has TensorFlow {stack.tensorflow}, but 2.4 or newer is needed" if old else ""


STRATEGY = Strategy(
    name="parameter_server",
    roles={
        "chief": RoleRule(1, 1, "it runs the training loop"),
        # The chief carries on without a lost worker, but waits forever when none is left.
        "worker": RoleRule(1, None, "it computes", gpu=True, serves=True, vital="last"),
        "ps": RoleRule(1, None, "it holds the variables", serves=True, vital="first"),
        "evaluator": RoleRule(0, 1),
    },
    first_job=FirstJob(
        "a chief coordinates, workers compute, each ps holds a part of the variables",
        "digits-ps",
        ("chief: 1", "ps: 2", "worker: 2"),
    ),
    deciders=lambda counts: (("chief", 0),),  # noqa: ARG005
    cluster_of=evaluator_apart,
    shared_output=True,
    why_shared="the chief and each ps write their parts of a checkpoint",
    lacking=lacking,
    instead="tf1_ps for a TensorFlow 1 program",
    adapt=with_keras_2,
    equal_gpus=True,  # "Mismatched number of GPUs per worker" (parameter_server_strategy_v2.py)
    chief_counts=True,
)
