"""tf.distribute.MirroredStrategy: one process on all GPUs of one host. A TF_CONFIG would make it wait for peers."""

from __future__ import annotations

from tfctl.model.strategies.base import FirstJob, RoleRule, Strategy

STRATEGY = Strategy(
    name="mirrored",
    roles={"worker": RoleRule(1, 1, "it trains", gpu=True)},
    first_job=FirstJob(
        "one process on all GPUs of one host",
        "digits-mirrored",
        ("worker: 1                # with GPUs: {replicas: 1, gpus: 4}",),
    ),
    deciders=lambda counts: (("worker", 0),),  # noqa: ARG005
    cluster_of=lambda cluster, role: None,  # noqa: ARG005
    synchronous=True,
)
