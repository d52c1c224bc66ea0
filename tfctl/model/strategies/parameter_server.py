"""tf.distribute.ParameterServerStrategy (TF2): a chief coordinates, workers compute, ps hold the variables."""

from __future__ import annotations

from tfctl.model.strategies.base import PS_ENVIRONMENT, RoleRule, Strategy, evaluator_apart

STRATEGY = Strategy(
    name="parameter_server",
    roles={
        "chief": RoleRule(1, 1, "it runs the training loop"),
        "worker": RoleRule(1, None, "it computes", gpu=True),
        "ps": RoleRule(1, None, "it holds the variables"),
        "evaluator": RoleRule(0, 1),
    },
    deciders=lambda counts: (("chief", 0),),  # noqa: ARG005
    cluster_of=evaluator_apart,
    environment=PS_ENVIRONMENT,
    legacy_keras=True,
)
