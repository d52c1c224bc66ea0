"""What defines a strategy: its roles, its TF_CONFIG, which tasks decide success, and how often tasks restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from tfctl.model.task import Task, TaskName

if TYPE_CHECKING:
    from tfctl.model.stacks import Stack

#: Role → addresses (``host:port``), in the order of their indices.
Cluster = Mapping[str, tuple[str, ...]]
#: Role → number of its tasks.
Counts = Mapping[str, int]
#: Returns variables of a task.
TaskEnvironment = Callable[[Task], Mapping[str, str]]


@dataclass(frozen=True)
class RoleRule:
    """How many tasks a role may have, and how they behave. ``why`` says what the role is needed for.

    ``gpu``: it computes on GPUs. ``serves``: it runs until it is stopped. ``leaves``: it ends by itself soon after the
    deciders. ``vital``: the job fails when the first, or the last, of its tasks has failed for good, because the other
    tasks would wait for it forever.
    """

    minimum: int = 0
    maximum: int | None = None
    why: str = ""
    gpu: bool = False
    serves: bool = False
    leaves: bool = False
    vital: Literal["", "first", "last"] = ""


class Refusal(NamedTuple):
    """The reason why the roles cannot be combined, and what to write instead."""

    message: str
    remedy: str


@dataclass(frozen=True)
class Adaptation:
    """What a strategy changes to run on a stack: variables, unless the job sets them, and the ``reason`` for them.

    ``warning``: what may go wrong on the stack all the same. Both continue a sentence that begins with the strategy.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    warning: str = ""


@dataclass(frozen=True)
class FirstJob:
    """The job that `tfctl init` writes. ``title``: what runs. ``example``: the directory of its script, in examples/.
    ``roles``: lines of the job file."""

    title: str
    example: str
    roles: tuple[str, ...]
    command: str = "python train.py"


@dataclass(frozen=True)
class Strategy:
    """One way of distributing TensorFlow.

    ``first_job``: the job with which a user can try it.
    ``other``: the rule for roles not named in ``roles``; None if there may be no others.
    ``cluster_of``: returns the cluster that a role's tasks see in TF_CONFIG; None for no TF_CONFIG at all.
    ``deciders``: returns the tasks whose success is the job's, with `success: auto` in the job file.
    ``refuse``: returns what is wrong with the roles beyond their counts.
    ``lacking``: returns what a stack lacks, as the end of a sentence, or an empty string. ``instead``: what to use
    where no such stack will do.
    ``adapt``: returns what to change on a stack.
    ``restarts``: how often a failed task is restarted, unless the job file says.
    ``grace``: seconds between SIGTERM and SIGKILL, unless the job file says.
    ``shared_output``: tasks write to a shared output directory, whatever their number. ``why_shared``: why they need
    one on several hosts, as a sentence; empty if a directory on each host is enough.
    ``equal_gpus``: all computing tasks need the same number of GPUs. ``host_gpus``: each task sees all GPUs that its
    role has on its host and picks by local rank; of MIG instances it sees only its own.
    ``launchers``: the variants that the job file's `launcher:` selects.
    ``task_environment``: returns, for all tasks of a job and its secret, the function that returns the extra variables
    of one task.
    ``wrapper``: the words of a program that runs the task's command.
    ``placing``: the variables, as patterns of fnmatch, that place a task besides TF_CONFIG and CUDA_VISIBLE_DEVICES.
    ``needs_horovod``: hosts whose stack has no Horovod cannot run its tasks.
    ``ipv4_only``: why its tasks cannot use IPv6 addresses, as a sentence without its end; empty if they can.
    ``independent``: its tasks may never connect to each other.
    ``synchronous``: its tasks wait for each other in each step. ``chief_counts``: its chief counts the steps of all
    workers. `tfctl report` compares the pace of tasks accordingly.
    """

    name: str
    roles: Mapping[str, RoleRule]
    first_job: FirstJob
    deciders: Callable[[Counts], tuple[TaskName, ...]]
    cluster_of: Callable[[Cluster, str], Cluster | None]
    other: RoleRule | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    refuse: Callable[[Counts], Refusal | None] = lambda counts: None  # noqa: ARG005
    lacking: Callable[[Stack], str] = lambda stack: ""  # noqa: ARG005
    instead: str = ""
    adapt: Callable[[Stack], Adaptation] = lambda stack: Adaptation()  # noqa: ARG005
    restarts: int = 3
    grace: int = 30
    shared_output: bool = False
    why_shared: str = ""
    equal_gpus: bool = False
    host_gpus: bool = False
    launchers: Mapping[str, Strategy] = field(default_factory=dict)
    task_environment: Callable[[Sequence[Task], str], TaskEnvironment] = lambda tasks, secret: lambda task: {}  # noqa: ARG005
    wrapper: tuple[str, ...] = ()
    placing: tuple[str, ...] = ()
    needs_horovod: bool = False
    ipv4_only: str = ""
    independent: bool = False
    synchronous: bool = False
    chief_counts: bool = False

    @property
    def clustered(self) -> bool:
        """Whether tasks find each other through TF_CONFIG."""
        return self.cluster_of({}, "") is not None

    @property
    def any_program(self) -> bool:
        """Whether it runs any program in any roles, of which nothing is known."""
        return self.other is not None

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


def with_keras_2(stack: Stack) -> Adaptation:
    """Switch tf.keras to Keras 2, because the `fit` of Keras 3 fails with several workers.

    Where tf_keras is missing, as on TensorFlow 2.15, the switch would break tf.keras. A custom training loop works
    with either version.
    """
    if stack.release("keras") < (3,):
        return Adaptation()
    if "tf_keras" in stack.imports:
        return Adaptation({"TF_USE_LEGACY_KERAS": "1"}, f"needs Keras 2 of stack {stack.name}")
    return Adaptation(
        warning=f"`fit` needs Keras 2, but stack {stack.name} has only Keras 3: install tf-keras there, or use a "
        "custom training loop"
    )


#: Without it, tasks wait forever for a peer that is frozen or cut off.
KEEPALIVE = {"TF_GRPC_DEFAULT_OPTIONS": "grpc.keepalive_time_ms=30000,grpc.keepalive_timeout_ms=20000"}
#: For every job with parameter servers. TensorFlow's parameter server guide asks for use_caller.
PS_ENVIRONMENT = {"GRPC_FAIL_FAST": "use_caller", **KEEPALIVE}
