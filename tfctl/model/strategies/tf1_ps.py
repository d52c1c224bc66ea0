"""TF1 clusters: tf.train.Server, replica_device_setter, MonitoredTrainingSession; told by TF_CONFIG or by flags."""

from __future__ import annotations

from tfctl.model.strategies.base import Counts, Name, RoleRule, Strategy, whole


def deciders(counts: Counts) -> tuple[Name, ...]:
    """The chief where there is one; else worker 0, who is MonitoredTrainingSession's chief by custom."""
    return (("chief", 0),) if counts.get("chief") else (("worker", 0),)


STRATEGY = Strategy(
    name="tf1_ps",
    roles={
        "chief": RoleRule(0, 1, gpu=True),
        "worker": RoleRule(1, None, "it computes", gpu=True, leaves=True),
        # A session waits for a ps that is gone as long as it takes.
        "ps": RoleRule(1, None, "it holds the variables", serves=True, vital="first"),
    },
    deciders=deciders,
    cluster_of=whole,
    # A synchronous chief needs 120 s after its last step (MonitoredTrainingSession's stop_grace_period_secs).
    grace=180,
)
