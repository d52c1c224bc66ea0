"""tf.distribute.MultiWorkerMirroredStrategy: every worker has all the variables, and they sum their gradients."""

from __future__ import annotations

from tfctl.model.strategies.base import KEEPALIVE, Counts, FirstJob, RoleRule, Strategy, evaluator_apart, with_keras_2
from tfctl.model.task import TaskName


def deciders(counts: Counts) -> tuple[TaskName, ...]:
    """Return all training tasks. Judge them by exit code alone: even a good run may log a heartbeat timeout."""
    return tuple((role, index) for role in ("chief", "worker") for index in range(counts.get(role, 0)))


# When one task dies, all fail within 20 s. Each unit restarts by itself, which counts as a restart for each, and the
# group forms again (measured on TensorFlow 2.15 and 2.21). The script resumes only from a backup of its own.
STRATEGY = Strategy(
    name="multi_worker_mirrored",
    roles={
        "chief": RoleRule(0, 1, gpu=True),
        "worker": RoleRule(1, None, "it trains", gpu=True),
        "evaluator": RoleRule(0, 1),
    },
    first_job=FirstJob(
        "one worker on each host; they train one model synchronously",
        "digits-multi-worker",
        ("worker: {per_host: 1}    # with GPUs: {per_host: 1, gpus: 4}",),
    ),
    deciders=deciders,
    cluster_of=evaluator_apart,
    environment=KEEPALIVE,
    shared_output=True,  # all save, but only the chief's files are kept
    why_shared="all workers restore what the chief has saved",
    adapt=with_keras_2,
    equal_gpus=True,  # a collective's group counts each worker's devices (tensorflow#33979)
    synchronous=True,
)
