"""A new strategy is one file: with it, every command knows the strategy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.linked_package import PACKAGE, link_package

RING = """
from tfctl.model.strategies.base import FirstJob, RoleRule, Strategy, whole

STRATEGY = Strategy(
    name="ring",
    roles={"worker": RoleRule(2, None, "it trains", gpu=True)},
    first_job=FirstJob("two workers in a ring", "digits-custom", ("worker: 2",)),
    deciders=lambda counts: (("worker", 0),),
    cluster_of=whole,
    synchronous=True,
)
"""
#: Runs commands one after the other, and prints the exit code of each behind its output. The last line is what the
#: report makes of a job with this strategy.
COMMANDS = """
from types import SimpleNamespace
from tfctl.cli.main import run
for words in ("init first --strategy ring", "check first/job.yaml", "render first/job.yaml", "schema"):
    print("exit code", run(words.split()))

from tfctl.jobs.state import TaskState
from tfctl.node.wire import RecordedTask, TaskStatus
from tfctl.report.read import run_figures
status = TaskStatus("worker", 0, "running", exit_code=None, signal=None, started=1.0, finished=None, restarts=0)
task = TaskState(RecordedTask("worker", 0, "a", "10.0.0.1", 2222, "tfctl-first-worker-0.service"), status)
record = SimpleNamespace(strategy="ring", guard=None)
job = SimpleNamespace(job="first", attempt=1, record=record, state="running", tasks=[task])
found = run_figures(job, {}, 2.0)
print(found.synchronous, found.tasks[0].computes)
"""


def test_a_new_strategy_is_known_to_every_command_by_its_file_alone(tmp_path: Path) -> None:
    link_package(tmp_path, {"model/strategies/ring.py": RING})
    for name in ("docs", "examples"):
        (tmp_path / name).symlink_to(PACKAGE.parent / name)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    _, checked, rendered, schema, report = done.stdout.split("exit code 0\n")
    assert (tmp_path / "first/job.yaml").read_text().startswith("# ring: two workers in a ring.\n")
    assert checked.startswith("first: no errors; "), done.stderr
    assert "TFCTL_STRATEGY=ring" in rendered.replace('"', "")
    assert '"ring"' in schema
    assert report == "True True\n"
