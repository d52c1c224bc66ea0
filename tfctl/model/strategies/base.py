"""What defines a strategy: its roles, its TF_CONFIG, which tasks decide success, and how often tasks restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tfctl.model.job import Job, Task

#: Role → addresses (``host:port``), in the order of their indices.
Cluster = Mapping[str, tuple[str, ...]]
#: Role → number of its tasks.
Counts = Mapping[str, int]
#: A task: role and index.
Name = tuple[str, int]


@dataclass(frozen=True)
class RoleRule:
    """How many tasks a role may have, and how they behave. ``why`` says what the role is needed for.

    ``gpu``: it computes on GPUs. ``serves``: it runs until it is stopped. ``leaves``: it ends by itself soon after the
    deciders. ``vital``: the job fails when the first, or the last, of its tasks has failed for good, because the other
    tasks would wait for it forever.
    """

    least: int = 0
    most: int | None = None
    why: str = ""
    gpu: bool = False
    serves: bool = False
    leaves: bool = False
    vital: Literal["", "first", "last"] = ""


class Refusal(NamedTuple):
    """Why the roles do not go together, and what to write instead."""

    message: str
    remedy: str


@dataclass(frozen=True)
class Strategy:
    """One way of distributing TensorFlow.

    ``other``: the rule for roles not named in ``roles``; None if there may be no others.
    ``cluster_of``: returns the cluster that a role's tasks see in TF_CONFIG; None for no TF_CONFIG at all.
    ``deciders``: returns the tasks whose success is the job's, with `success: auto` in the job file.
    ``refuse``: returns what is wrong with the roles beyond their counts.
    ``restarts``: how often a failed task is restarted, unless the job file says.
    ``grace``: seconds between SIGTERM and SIGKILL, unless the job file says.
    ``shared_output``: tasks write to a shared output directory, whatever their number.
    ``legacy_keras``: needs Keras 2 if the stack also has Keras 3. ``estimator``: needs tf.estimator.
    ``since``: the first TensorFlow version that has it.
    ``equal_gpus``: all computing tasks need the same number of GPUs. ``host_gpus``: each task sees all GPUs that its
    role has on its host and picks by local rank; of MIG instances it sees only its own. ``horovod``: needs Horovod.
    ``launchers``: the variants that the job file's `launcher:` selects.
    ``own_environment``: returns extra variables for one task. ``beneath``: the words of a wrapper program that runs
    the task's command.
    """

    name: str
    roles: Mapping[str, RoleRule]
    deciders: Callable[[Counts], tuple[Name, ...]]
    cluster_of: Callable[[Cluster, str], Cluster | None]
    other: RoleRule | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    refuse: Callable[[Counts], Refusal | None] = lambda counts: None  # noqa: ARG005
    restarts: int = 3
    grace: int = 30
    shared_output: bool = False
    legacy_keras: bool = False
    estimator: bool = False
    since: tuple[int, int] = (1, 0)
    equal_gpus: bool = False
    host_gpus: bool = False
    horovod: bool = False
    own_environment: Callable[[Job, Task], Mapping[str, str]] = lambda job, task: {}  # noqa: ARG005
    beneath: tuple[str, ...] = ()
    launchers: Mapping[str, Strategy] = field(default_factory=dict)

    def rule(self, role: str) -> RoleRule | None:
        """Return the role's rule; None if the strategy has no such role."""
        return self.roles.get(role, self.other)


def whole(cluster: Cluster, role: str) -> Cluster:  # noqa: ARG001
    """Return every role, for every task."""
    return cluster


def evaluator_apart(cluster: Cluster, role: str) -> Cluster:
    """Separate the evaluator: training tasks dial every task in their cluster (tensorflow#46169)."""
    if role == "evaluator":
        return {"evaluator": cluster["evaluator"]}
    return without_evaluator(cluster, role)


def without_evaluator(cluster: Cluster, role: str) -> Cluster:  # noqa: ARG001
    """Return every role but the evaluator, for every task."""
    return {name: addresses for name, addresses in cluster.items() if name != "evaluator"}


#: Without it, tasks wait forever for a peer that is frozen or cut off.
KEEPALIVE = {"TF_GRPC_DEFAULT_OPTIONS": "grpc.keepalive_time_ms=30000,grpc.keepalive_timeout_ms=20000"}
#: For every job with parameter servers. TensorFlow's parameter server guide asks for use_caller.
PS_ENVIRONMENT = {"GRPC_FAIL_FAST": "use_caller", **KEEPALIVE}
