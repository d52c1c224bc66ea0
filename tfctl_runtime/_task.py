"""Which task this process is, by its environment."""

import atexit
import json
import os
import shutil
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Tuple

#: The strategies of a job file whose tasks find each other by TF_CONFIG.
CLUSTERED = ("tf1_ps", "estimator", "parameter_server", "multi_worker_mirrored", "custom")
#: Tasks without a program of their own: they compute, or keep variables, for others.
_SERVING = {"parameter_server": ("ps", "worker"), "tf1_ps": ("ps",), "estimator": ("ps",)}
_EXAMPLE = '{"cluster": {"worker": ["10.0.0.5:2222"]}, "task": {"type": "worker", "index": 0}}'

#: The process that has made it (a fork makes one of its own), and its path.
_scratch = (0, "")


class Task:
    """One process of a job, or of an ordinary local run.

    ``strategy`` is a word of the job file; ``local`` where there is no job; never ``custom``, which goes by the shape
    of its cluster and is ``unknown`` where that says nothing. ``cluster``: role -> addresses (``host:port``).
    """

    def __init__(self, strategy: str, role: str, index: int, cluster: Mapping[str, List[str]]) -> None:
        self.strategy = strategy
        self.role = role
        self.index = index
        self.cluster = cluster

    @property
    def chief(self) -> bool:
        """Whether it writes: the chief, or the master, where there is one, else worker 0. ValueError without any."""
        if self.role in ("chief", "master", "evaluator"):
            return self.role != "evaluator"
        if self.cluster and not {"chief", "master", "worker"} & set(self.cluster):
            raise ValueError("TF_CONFIG: none of {} is a chief, master or worker".format(", ".join(self.cluster)))
        return not {"chief", "master"} & set(self.cluster) and (self.role, self.index) == ("worker", 0)

    @property
    def workers(self) -> int:
        """How many processes train together; a chief trains like the others."""
        return max(1, sum(len(self.cluster.get(role, ())) for role in ("chief", "worker")))

    @property
    def serves(self) -> bool:
        """Whether it has no program of its own."""
        return self.role in _SERVING.get(self.strategy, ())

    def __str__(self) -> str:
        return f"{self.role}/{self.index}"


def is_chief() -> bool:
    """Whether this task writes checkpoints, summaries and the model.

    The chief, or the master, where the job has one, else worker 0; always in a local run; never an evaluator.
    """
    return read().chief


def scratch_dir() -> str:
    """A directory of this process alone, the same at every call, removed when it ends: for what must be written by all
    and is wanted of the chief alone."""
    global _scratch
    if _scratch[0] != os.getpid():
        _scratch = (os.getpid(), tempfile.mkdtemp(prefix="tfctl-"))
        atexit.register(_remove, *_scratch)
    return _scratch[1]


def read(environ: Optional[Mapping[str, str]] = None) -> Task:
    """This process's task. Raises ValueError with one sentence that names the variable."""
    env = os.environ if environ is None else environ
    named = env.get("TFCTL_STRATEGY", "")
    if named and named not in CLUSTERED:  # mirrored, and whatever has no TF_CONFIG: one that was inherited is no word
        return Task(named, env.get("TFCTL_ROLE", "worker"), int(env.get("TFCTL_INDEX", "0")), {})
    cluster, role, index = _config(env.get("TF_CONFIG", ""))
    if named and not cluster:
        raise ValueError(f"TF_CONFIG is gone, though TFCTL_STRATEGY is {named}: leave it as tfctl has set it")
    return Task(_by_shape(cluster) if named in ("", "custom") else named, role, index, cluster)


def _config(text: str) -> Tuple[Dict[str, List[str]], str, int]:
    """Cluster, role and index; no cluster where TF_CONFIG has none, which TensorFlow too takes for a local run."""
    try:
        config = json.loads(text or "{}")
        cluster = {str(role): _addresses(found) for role, found in (config.get("cluster") or {}).items()}
        if not cluster:
            return {}, "worker", 0
        role, index = str(config["task"]["type"]), int(config["task"]["index"])
    except (ValueError, TypeError, AttributeError, KeyError):
        raise ValueError(f"TF_CONFIG: {text[:200]!r} cannot be read; it is to be like {_EXAMPLE}") from None
    if role != "evaluator" and not 0 <= index < len(cluster.get(role, ())):  # an evaluator need not be in the cluster
        raise ValueError(f"TF_CONFIG: the task {role}/{index} is not in its cluster")
    return cluster, role, index


def _addresses(found: Any) -> List[str]:
    if not isinstance(found, list):
        raise TypeError(found)
    return [str(address) for address in found]


def _by_shape(cluster: Mapping[str, List[str]]) -> str:
    if not cluster:
        return "local"
    if "master" in cluster:
        return "estimator"
    if "ps" in cluster:
        return "parameter_server" if "chief" in cluster else "tf1_ps"
    return "multi_worker_mirrored" if {"chief", "worker", "evaluator"} & set(cluster) else "unknown"


def _remove(owner: int, path: str) -> None:
    if owner == os.getpid():
        shutil.rmtree(path, ignore_errors=True)
