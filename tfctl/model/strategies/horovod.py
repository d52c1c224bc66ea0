"""Horovod: ranks that average their gradients. They get no TF_CONFIG, from which Keras would form its own cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tfctl.model.strategies.base import Counts, Name, RoleRule, Strategy

if TYPE_CHECKING:
    from tfctl.model.job import Job, Task

#: Timeout (s) for the ranks to meet and for each Gloo operation. Horovod's default of 30 is too short for many nodes.
_MEET_S = 300
#: How long (s) a rank may wait for the others at one tensor. Without a limit, ranks that took different numbers of
#: steps wait forever.
_STALL_S = 600


def deciders(counts: Counts) -> tuple[Name, ...]:
    """Return all ranks."""
    return tuple(("worker", index) for index in range(counts.get("worker", 0)))


def gloo(job: Job, task: Task) -> Mapping[str, str]:
    """Return what horovodrun sets for a rank (0.28, runner/gloo_run.py), except the interface: each host finds it."""
    ranks = _ranks(job)
    here = [rank.index for rank in ranks if rank.host.name == task.host.name]
    local = here.index(task.index)
    per_host = Counter(rank.host.name for rank in ranks)
    across = [host for host, count in per_host.items() if count > local]
    return {
        **_of_all(job),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": ranks[0].address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(ranks[0].port),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(_MEET_S),
        "HOROVOD_HOSTNAME": task.address,
        "HOROVOD_RANK": str(task.index),
        "HOROVOD_SIZE": str(len(ranks)),
        "HOROVOD_LOCAL_RANK": str(local),
        "HOROVOD_LOCAL_SIZE": str(len(here)),
        "HOROVOD_CROSS_RANK": str(across.index(task.host.name)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
    }


def mpi(job: Job, task: Task) -> Mapping[str, str]:  # noqa: ARG001
    """Return the variables that mpirun does not set for a rank."""
    return {
        **_of_all(job),
        "TFCTL_SECRET": job.secret,
        "TFCTL_MEET_S": str(_MEET_S),
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "mpi",
        "PMIX_MCA_gds": "hash",  # its other stores use files in /tmp, which units do not share
    }


def _of_all(job: Job) -> dict[str, str]:
    return {
        "TFCTL_RANKS": json.dumps([rank.dial for rank in _ranks(job)], separators=(",", ":")),
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(_STALL_S),
    }


def _ranks(job: Job) -> list[Task]:
    return [task for task in job.tasks if task.role == "worker"]


# When one rank dies, the others fail within two seconds. Each unit restarts by itself, which counts as a restart for
# each, and the ranks meet again. Anything the script does not restore starts over.
_GLOO = Strategy(
    name="horovod",
    roles={"worker": RoleRule(1, None, "they are the ranks", gpu=True)},
    deciders=deciders,
    cluster_of=lambda cluster, role: None,  # noqa: ARG005
    host_gpus=True,  # a script takes gpus[hvd.local_rank()]
    horovod=True,
    own_environment=gloo,
    beneath=("python3", "-m", "tfctl_runtime.horovod.gloo"),
)
_MPI = replace(_GLOO, own_environment=mpi, beneath=("python3", "-m", "tfctl_runtime.horovod.mpi"))
STRATEGY = replace(_GLOO, launchers={"gloo": _GLOO, "mpi": _MPI})
