"""Horovod: ranks that average their gradients. They get no TF_CONFIG, from which Keras would form its own cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tfctl.model.strategies.base import Counts, FirstJob, RoleRule, Strategy, TaskEnvironment
from tfctl.model.task import Task, TaskName

if TYPE_CHECKING:
    from tfctl.model.stacks import Stack

#: Timeout (s) for the ranks to meet and for each Gloo operation. Horovod's default of 30 is too short for many nodes.
_MEET_S = 300
#: How long (s) a rank may wait for the others at one tensor. Without a limit, ranks that took different numbers of
#: steps wait forever.
_STALL_S = 600
#: What places a rank. The other variables of Horovod tune it, and a job may set them.
_PLACING = ("RANK", "SIZE", "LOCAL_*", "CROSS_*", "HOSTNAME", "CONTROLLER", "CPU_OPERATIONS", "GLOO_RENDEZVOUS_*")


def deciders(counts: Counts) -> tuple[TaskName, ...]:
    """Return all ranks."""
    return tuple(("worker", index) for index in range(counts.get("worker", 0)))


def gloo(ranks: Sequence[Task], secret: str) -> TaskEnvironment:  # noqa: ARG001
    """Return what horovodrun sets for a rank (0.28, runner/gloo_run.py), except the interface: each host finds it."""
    by_host: dict[str, list[int]] = {}
    for rank in ranks:
        by_host.setdefault(rank.host.name, []).append(rank.index)
    local, cross = dict[int, int](), dict[int, int]()
    across = Counter[int]()  # by local rank: on how many hosts there is one
    for here in by_host.values():
        for number, index in enumerate(here):
            local[index], cross[index] = number, across[number]
            across[number] += 1
    of_job = {
        **_common(ranks),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": ranks[0].address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(ranks[0].port),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(_MEET_S),
    }
    return lambda rank: {
        **of_job,
        "HOROVOD_HOSTNAME": rank.address,
        "HOROVOD_RANK": str(rank.index),
        "HOROVOD_SIZE": str(len(ranks)),
        "HOROVOD_LOCAL_RANK": str(local[rank.index]),
        "HOROVOD_LOCAL_SIZE": str(len(by_host[rank.host.name])),
        "HOROVOD_CROSS_RANK": str(cross[rank.index]),
        "HOROVOD_CROSS_SIZE": str(across[local[rank.index]]),
    }


def mpi(ranks: Sequence[Task], secret: str) -> TaskEnvironment:
    """Return the variables that mpirun does not set for a rank. They are the same for all."""
    of_job = {
        **_common(ranks),
        "TFCTL_SECRET": secret,
        "TFCTL_MEET_S": str(_MEET_S),
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "mpi",
        "PMIX_MCA_gds": "hash",  # its other stores use files in /tmp, which units do not share
    }
    return lambda _: of_job


def _common(ranks: Sequence[Task]) -> dict[str, str]:
    return {
        "TFCTL_RANKS": json.dumps([rank.dial for rank in ranks], separators=(",", ":")),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(_STALL_S),
    }


def lacking(stack: Stack) -> str:
    if stack.horovod is not None or "horovod" in stack.imports:
        return ""
    return f"has no Horovod for its TensorFlow {stack.tensorflow}"


# When one rank dies, the others fail within two seconds. Each unit restarts by itself, which counts as a restart for
# each, and the ranks meet again. Anything the script does not restore starts over.
_GLOO = Strategy(
    name="horovod",
    roles={"worker": RoleRule(1, None, "they are the ranks", gpu=True)},
    first_job=FirstJob(
        "one rank on each host, which average their gradients",
        "digits-horovod",
        ("worker: {per_host: 1}    # with GPUs: {per_host: 4, gpus: 1}",),
    ),
    deciders=deciders,
    cluster_of=lambda cluster, role: None,  # noqa: ARG005
    host_gpus=True,  # a script takes gpus[hvd.local_rank()]
    lacking=lacking,
    instead="the strategy multi_worker_mirrored",
    task_environment=gloo,
    wrapper=("python3", "-m", "tfctl_runtime.horovod.gloo"),
    placing=tuple(f"HOROVOD_{name}" for name in _PLACING),
    needs_horovod=True,
    ipv4_only="Horovod's ranks meet over IPv4 only",
    synchronous=True,
)
_MPI = replace(_GLOO, task_environment=mpi, wrapper=("python3", "-m", "tfctl_runtime.horovod.mpi"))
STRATEGY = replace(_GLOO, launchers={"gloo": _GLOO, "mpi": _MPI})
