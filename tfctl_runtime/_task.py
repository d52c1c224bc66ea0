"""Determine which task this process is, from its environment."""

import atexit
import json
import os
import shutil
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Tuple

#: The roles that only compute or hold variables for others, where the job does not say: in TensorFlow's own clusters.
_SERVING = {"parameter_server": ("ps", "worker"), "tf1_ps": ("ps",), "estimator": ("ps",)}
_EXAMPLE = '{"cluster": {"worker": ["10.0.0.5:2222"]}, "task": {"type": "worker", "index": 0}}'

#: The process that created the directory (a fork creates its own), and its path.
_scratch = (0, "")


class Task:
    """One process of a job, or of an ordinary local run.

    ``strategy`` is the job file's, or ``local`` without a job. It is never ``custom``: that is replaced by what the
    shape of the cluster implies, or ``unknown``. ``cluster`` maps roles to addresses (``host:port``). ``serves``: it
    only computes or holds variables for others.
    """

    def __init__(
        self, strategy: str, role: str, index: int, cluster: Mapping[str, List[str]], serves: Optional[bool] = None
    ) -> None:
        self.strategy = strategy
        self.role = role
        self.index = index
        self.cluster = cluster
        self.serves = role in _SERVING.get(strategy, ()) if serves is None else serves

    @property
    def chief(self) -> bool:
        """Whether it writes: the chief or master if there is one, else worker 0. Raise ValueError if there is none."""
        if self.role in ("chief", "master", "evaluator"):
            return self.role != "evaluator"
        if self.cluster and not {"chief", "master", "worker"} & set(self.cluster):
            raise ValueError("TF_CONFIG: none of {} is a chief, master or worker".format(", ".join(self.cluster)))
        return not {"chief", "master"} & set(self.cluster) and (self.role, self.index) == ("worker", 0)

    @property
    def workers(self) -> int:
        """How many processes train together; a chief trains like the others."""
        return max(1, sum(len(self.cluster.get(role, ())) for role in ("chief", "worker")))

    def __str__(self) -> str:
        return f"{self.role}/{self.index}"


def is_chief() -> bool:
    """Return whether this task writes checkpoints, summaries and the model.

    That is the chief or master if the job has one, else worker 0. Always true in a local run, never in an evaluator.
    """
    return read().chief


def scratch_dir() -> str:
    """Return a temporary directory of this process, the same one every time, removed when the process ends.

    Use it for files that every task must write but only the chief's are wanted.
    """
    global _scratch
    if _scratch[0] != os.getpid():
        _scratch = (os.getpid(), tempfile.mkdtemp(prefix="tfctl-"))
        atexit.register(_remove, *_scratch)
    return _scratch[1]


def read(environ: Optional[Mapping[str, str]] = None) -> Task:
    """Return this process's task. Raise ValueError with a sentence that names the faulty variable."""
    env = os.environ if environ is None else environ
    named = env.get("TFCTL_STRATEGY", "")
    serves = _flag(env, "TFCTL_SERVES")
    # Jobs started by an older tfctl do not set this flag.
    clustered = not named or _flag(env, "TFCTL_CLUSTERED", "TF_CONFIG" in env)
    if not clustered:  # ignore an inherited TF_CONFIG
        return Task(named, env.get("TFCTL_ROLE", "worker"), int(env.get("TFCTL_INDEX", "0")), {}, serves)
    cluster, role, index = _config(env.get("TF_CONFIG", ""))
    if named and not cluster:
        raise ValueError(f"TF_CONFIG is missing, though TFCTL_STRATEGY is {named}: leave it as tfctl set it")
    if named in ("", "custom"):
        return Task(_by_shape(cluster), role, index, cluster)
    return Task(named, role, index, cluster, serves)


def _flag(env: Mapping[str, str], name: str, default: Optional[bool] = None) -> Optional[bool]:
    return env[name] == "1" if name in env else default


def _config(text: str) -> Tuple[Dict[str, List[str]], str, int]:
    """Return cluster, role and index. Without a cluster in TF_CONFIG it is a local run, as in TensorFlow."""
    try:
        config = json.loads(text or "{}")
        cluster = {str(role): _addresses(found) for role, found in (config.get("cluster") or {}).items()}
        if not cluster:
            return {}, "worker", 0
        role, index = str(config["task"]["type"]), int(config["task"]["index"])
    except (ValueError, TypeError, AttributeError, KeyError):
        raise ValueError(f"TF_CONFIG: {text[:200]!r} cannot be read; it should look like {_EXAMPLE}") from None
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
