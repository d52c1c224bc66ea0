"""What a strategy is: its roles, its TF_CONFIG, who decides success, and who comes back by itself."""

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
    """How many tasks a role may have, and what they are; ``why`` says what one is needed for.

    ``gpu``: it computes on GPUs. ``serves``: it runs until it is stopped. ``leaves``: it ends by itself soon after the
    deciders. ``vital``: with the first of its tasks that is gone for good, or the last, the job has failed: the others
    would wait for it for ever.
    """

    least: int = 0
    most: int | None = None
    why: str = ""
    gpu: bool = False
    serves: bool = False
    leaves: bool = False
    vital: Literal["", "first", "last"] = ""


class Refusal(NamedTuple):
    """Why roles do not go together, and what to write instead."""

    message: str
    remedy: str


@dataclass(frozen=True)
class Strategy:
    """One way of distributing TensorFlow.

    ``other`` is the rule of roles that ``roles`` does not name; None: there are none.
    ``cluster_of`` gives the cluster that a task of a role is told of; None: no TF_CONFIG at all.
    ``deciders`` names the tasks whose success is the job's, where the job file says `success: auto`.
    ``refuse`` says what is wrong with the roles beyond their numbers.
    ``restarts`` is how often a failed task comes back, where the job file does not say.
    ``grace``: seconds between SIGTERM and SIGKILL, where the job file does not say.
    ``shared_output``: several tasks write there, whatever their number.
    ``legacy_keras``: needs Keras 2 where the stack has Keras 3 beside it. ``estimator``: needs tf.estimator.
    ``since``: the first TensorFlow that has it.
    ``equal_gpus``: all tasks that compute must have as many. ``host_gpus``: each sees all that its job has on its host,
    and takes its own by the number it has there; of MIG instances it sees its own alone. ``horovod``: needs Horovod.
    ``launchers``: what it becomes by the job file's `launcher:`.
    ``own_environment`` gives variables of one task. ``beneath``: the words before its command, a program that it runs
    beneath.
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
        """The role's rule; None where the strategy has no such role."""
        return self.roles.get(role, self.other)


def whole(cluster: Cluster, role: str) -> Cluster:  # noqa: ARG001
    """Every role, for every task."""
    return cluster


def evaluator_apart(cluster: Cluster, role: str) -> Cluster:
    """Who trains dials every task it is told of, so an evaluator stands alone (tensorflow#46169)."""
    if role == "evaluator":
        return {"evaluator": cluster["evaluator"]}
    return without_evaluator(cluster, role)


def without_evaluator(cluster: Cluster, role: str) -> Cluster:  # noqa: ARG001
    """Those who train, for every task."""
    return {name: addresses for name, addresses in cluster.items() if name != "evaluator"}


#: Without it a peer that is frozen or cut off is waited for without end.
KEEPALIVE = {"TF_GRPC_DEFAULT_OPTIONS": "grpc.keepalive_time_ms=30000,grpc.keepalive_timeout_ms=20000"}
#: For every job with parameter servers. use_caller: TensorFlow's parameter server guide asks for it.
PS_ENVIRONMENT = {"GRPC_FAIL_FAST": "use_caller", **KEEPALIVE}
