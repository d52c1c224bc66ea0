"""TF1 clusters (tf.train.Server, replica_device_setter, MonitoredTrainingSession), set up by TF_CONFIG or by flags."""

from __future__ import annotations

from tfctl.model.strategies.base import Counts, FirstJob, RoleRule, Strategy, whole
from tfctl.model.task import TaskName


def deciders(counts: Counts) -> tuple[TaskName, ...]:
    """Return the chief if there is one, else worker 0, which is MonitoredTrainingSession's chief by convention."""
    return (("chief", 0),) if counts.get("chief") else (("worker", 0),)


STRATEGY = Strategy(
    name="tf1_ps",
    roles={
        "chief": RoleRule(0, 1, gpu=True),
        "worker": RoleRule(1, None, "it computes", gpu=True, leaves=True),
        # A session waits indefinitely for a lost ps.
        "ps": RoleRule(1, None, "it holds the variables", serves=True, vital="first"),
    },
    first_job=FirstJob("a TensorFlow 1 cluster with parameter servers", "digits-tf1-ps", ("ps: 2", "worker: 2")),
    deciders=deciders,
    cluster_of=whole,
    why_shared="each ps writes its part of a checkpoint, which the chief restores",
    # A synchronous chief needs 120 s after its last step (MonitoredTrainingSession's stop_grace_period_secs).
    grace=180,
)
