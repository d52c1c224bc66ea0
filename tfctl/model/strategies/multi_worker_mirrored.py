"""tf.distribute.MultiWorkerMirroredStrategy: every worker has all the variables, and they sum their gradients."""

from __future__ import annotations

from tfctl.model.strategies.base import KEEPALIVE, Counts, Name, RoleRule, Strategy, evaluator_apart


def deciders(counts: Counts) -> tuple[Name, ...]:
    """All who train, by exit code alone: the text of a good end may speak of a heartbeat timeout."""
    return tuple((role, index) for role in ("chief", "worker") for index in range(counts.get(role, 0)))


# When one dies all fail within 20 s. Each unit comes back as it fell, which counts for each, and the group forms anew
# (measured on TensorFlow 2.15 and 2.21); only a backup of the script's own lets it go on from where it was.
STRATEGY = Strategy(
    name="multi_worker_mirrored",
    roles={
        "chief": RoleRule(0, 1, gpu=True),
        "worker": RoleRule(1, None, "it trains", gpu=True),
        "evaluator": RoleRule(0, 1),
    },
    deciders=deciders,
    cluster_of=evaluator_apart,
    environment=KEEPALIVE,
    shared_output=True,  # all save: the chief what is kept, the others beside it; all restore what the chief saved
    legacy_keras=True,
    equal_gpus=True,  # a collective's group counts each worker's devices (tensorflow#33979)
)
