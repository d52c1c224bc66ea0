"""tf.distribute.MirroredStrategy: one process, all the GPUs of one host; a TF_CONFIG would make it wait for others."""

from __future__ import annotations

from tfctl.model.strategies.base import RoleRule, Strategy

STRATEGY = Strategy(
    name="mirrored",
    roles={"worker": RoleRule(1, 1, "it trains", gpu=True)},
    deciders=lambda counts: (("worker", 0),),  # noqa: ARG005
    cluster_of=lambda cluster, role: None,  # noqa: ARG005
)
