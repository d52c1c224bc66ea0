"""What tfctl puts into a task's environment."""

from __future__ import annotations

import json

import pytest

from tfctl.model.strategies import STRATEGIES


def tf_config(role: str, index: int = 0, **roles: int) -> str:
    """``tf_config("worker", 1, chief=1, worker=2)``: that task's, in a cluster of so many of each role."""
    cluster = {name: [f"127.0.0.1:{20000 + 10 * n + i}" for i in range(k)] for n, (name, k) in enumerate(roles.items())}
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


def job(monkeypatch: pytest.MonkeyPatch, strategy: str, config: str = "", **more: str) -> None:
    """Set what tfctl sets for a task of this strategy; nothing of it outside a job."""
    known = STRATEGIES.get(strategy)
    flags = {"TFCTL_CLUSTERED": "1" if known.clustered else "0"} if known else {}
    if known and config and known.clustered and (rule := known.rule(json.loads(config)["task"]["type"])):
        flags["TFCTL_SERVES"] = "1" if rule.serves else "0"
    for name, value in {"TFCTL_STRATEGY": strategy, "TF_CONFIG": config, **flags, **more}.items():
        if value:
            monkeypatch.setenv(name, value)


PS = {"chief": 1, "ps": 2, "worker": 2}
