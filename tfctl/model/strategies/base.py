"""What a strategy is: its roles, its TF_CONFIG, who decides success, and who comes back by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

#: Role → addresses (``host:port``), in the order of their indices.
Cluster = Mapping[str, tuple[str, ...]]
#: Role → number of its tasks.
Counts = Mapping[str, int]
#: A task: role and index.
Name = tuple[str, int]


@dataclass(frozen=True)
class RoleRule:
    """How many tasks a role may have; ``why`` says what one is needed for; ``gpu``: whether it computes on GPUs."""

    least: int = 0
    most: int | None = None
    why: str = ""
    gpu: bool = False


@dataclass(frozen=True)
class Strategy:
    """One way of distributing TensorFlow.

    ``other`` is the rule of roles that ``roles`` does not name; None: there are none.
    ``cluster_of`` gives the cluster that a task of a role is told of; None: no TF_CONFIG at all.
    ``deciders`` names the tasks whose success is the job's, where the job file says `success: auto`.
    ``restarts`` is how often a failed task comes back, where the job file does not say.
    ``grace``: seconds between SIGTERM and SIGKILL, where the job file does not say.
    ``shared_output``: several tasks write there, whatever their number.
    ``legacy_keras``: needs Keras 2 where the stack has Keras 3 beside it.
    """

    name: str
    roles: Mapping[str, RoleRule]
    deciders: Callable[[Counts], tuple[Name, ...]]
    cluster_of: Callable[[Cluster, str], Cluster | None]
    other: RoleRule | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    refuse: Callable[[Counts], str] = lambda counts: ""  # noqa: ARG005
    restarts: int = 3
    grace: int = 30
    shared_output: bool = False
    legacy_keras: bool = False

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
    return {name: addresses for name, addresses in cluster.items() if name != "evaluator"}


#: For tasks that talk to parameter servers. use_caller: TensorFlow's parameter server guide asks for it. Without the
#: keepalive a peer that is frozen or cut off is waited for without end.
PS_ENVIRONMENT = {
    "GRPC_FAIL_FAST": "use_caller",
    "TF_GRPC_DEFAULT_OPTIONS": "grpc.keepalive_time_ms=30000,grpc.keepalive_timeout_ms=20000",
}
