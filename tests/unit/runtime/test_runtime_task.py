"""Which task this is; and that nothing but the standard library is needed to know it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfctl_runtime as runtime
from tests.unit.runtime.a_job import PS, job, tf_config
from tfctl.model import env
from tfctl.model.host import Host, Ssh
from tfctl.model.job import Job, Layout
from tfctl.model.jobfile import Policy
from tfctl.model.rules import resolve
from tfctl.model.strategies import STRATEGIES
from tfctl.model.task import Slot, Task
from tfctl_runtime import _task

ROOT = Path(__file__).parents[3]
FAKES = Path(__file__).parent / "fakes"


def pythons() -> list[str]:
    """The Pythons of this machine, pyenv's among them: a stack's may be any from 3.6 on."""
    found = {sys.executable}
    for minor in range(6, 15):
        candidates = [shutil.which(f"python3.{minor}"), *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
        for path in map(str, filter(None, candidates)):
            if subprocess.run([path, "-c", ""], capture_output=True, timeout=20).returncode == 0:
                found.add(path)
    return sorted(found)


@pytest.mark.parametrize("python", pythons())
def test_the_runtime_needs_only_the_standard_library_of_any_python(python: str) -> None:
    """A TensorFlow that is there is left alone until it is needed."""
    script = f"""
import sys
sys.dont_write_bytecode = True
sys.path[:0] = [{str(ROOT)!r}, {str(FAKES)!r}]
import tfctl_runtime as runtime
print(runtime.is_chief(), runtime.scratch_dir())
runtime.serve_forever_if_needed()
print([name for name in sys.modules if name.startswith(("tensorflow", "tfctl")) and "runtime" not in name])
print(type(runtime.strategy()).__name__)
"""
    done = subprocess.run(
        [python, "-I", "-S", "-W", "error", "-c", script], env=os.environ, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    first, modules, strategy = done.stdout.splitlines()
    chief, scratch = first.split(" ", 1)
    assert (chief, modules, strategy) == ("True", "[]", "Strategy")
    assert not Path(scratch).exists()


@pytest.mark.parametrize(
    ("strategy", "config", "kind", "chief", "serves"),
    [
        ("", "", "local", True, False),
        ("", '{"cluster": {}, "task": {"type": "worker", "index": 3}}', "local", True, False),
        ("mirrored", tf_config("worker", 1, worker=2), "mirrored", True, False),  # an inherited one counts for nothing
        ("multi_worker_mirrored", tf_config("worker", 0, worker=2), "multi_worker_mirrored", True, False),
        ("multi_worker_mirrored", tf_config("worker", 1, worker=2), "multi_worker_mirrored", False, False),
        ("multi_worker_mirrored", tf_config("worker", 0, chief=1, worker=2), "multi_worker_mirrored", False, False),
        ("multi_worker_mirrored", tf_config("chief", 0, chief=1, worker=2), "multi_worker_mirrored", True, False),
        ("multi_worker_mirrored", tf_config("evaluator", evaluator=1), "multi_worker_mirrored", False, False),
        ("parameter_server", tf_config("chief", **PS), "parameter_server", True, False),
        ("parameter_server", tf_config("worker", **PS), "parameter_server", False, True),
        ("parameter_server", tf_config("ps", 1, **PS), "parameter_server", False, True),
        ("parameter_server", tf_config("evaluator", evaluator=1), "parameter_server", False, False),
        ("tf1_ps", tf_config("worker", 0, ps=1, worker=2), "tf1_ps", True, False),
        ("tf1_ps", tf_config("ps", 0, ps=1, worker=2), "tf1_ps", False, True),
        ("estimator", tf_config("master", 0, master=1, ps=1, worker=1), "estimator", True, False),
        ("estimator", tf_config("worker", 0, master=1, ps=1, worker=1), "estimator", False, False),
        ("estimator", tf_config("evaluator", **PS), "estimator", False, False),
        ("custom", tf_config("worker", **PS), "parameter_server", False, True),
        # Outside a job, by the shape of the cluster.
        ("", tf_config("worker", 0, worker=3), "multi_worker_mirrored", True, False),
        ("", tf_config("worker", 0, ps=1, worker=2), "tf1_ps", True, False),
        ("", tf_config("master", 0, master=1, ps=1), "estimator", True, False),
    ],
)
def test_a_task_is_known_by_its_environment(
    monkeypatch: pytest.MonkeyPatch, strategy: str, config: str, kind: str, chief: bool, serves: bool
) -> None:
    job(monkeypatch, strategy, config)
    task = _task.read()
    assert (task.strategy, runtime.is_chief(), task.serves) == (kind, chief, serves)


def test_a_strategy_that_the_runtime_does_not_know_follows_what_the_job_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "ring", tf_config("worker", 1, worker=2), TFCTL_CLUSTERED="1", TFCTL_SERVES="0")
    assert (list(_task.read().cluster), runtime.is_chief(), _task.read().serves) == (["worker"], False, False)
    monkeypatch.setenv("TFCTL_SERVES", "1")
    assert _task.read().serves
    monkeypatch.setenv("TFCTL_CLUSTERED", "0")
    assert (_task.read().cluster, runtime.is_chief()) == ({}, True)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_the_runtime_reads_back_what_the_job_sets_for_each_task(strategy: str) -> None:
    roles = [role for role in STRATEGIES[strategy].roles or ("worker",) if role != "master"]
    host = Host("node1", Ssh("10.0.0.1"))
    slots = [Slot(role, 0, host, None, ("run",), {}, "none") for role in roles]
    tasks = tuple(Task(slot, "10.0.0.1", 2222 + number, None) for number, slot in enumerate(slots))
    rules = resolve(Policy(), STRATEGIES[strategy], dict.fromkeys(roles, 1))
    layout = Layout("j", STRATEGIES[strategy], "", Path(), "/o", None, False, Policy(), rules, tuple(slots))
    made = Job(layout, 1, "00000000", 0.0, tasks)
    for task in tasks:
        found = _task.read(env.environment(made, task))
        rule = STRATEGIES[strategy].rule(task.role)
        assert (found.role, found.index) == (task.role, 0)
        assert bool(found.cluster) is STRATEGIES[strategy].clustered
        if strategy != "custom":
            assert rule and (found.strategy, found.serves) == (strategy, rule.serves)


def test_without_tf_config_the_first_worker_of_a_job_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, "horovod", TFCTL_ROLE="worker", TFCTL_INDEX="1")
    assert not runtime.is_chief()
    monkeypatch.setenv("TFCTL_INDEX", "0")
    assert runtime.is_chief()


@pytest.mark.parametrize(
    ("strategy", "config", "said"),
    [
        ("multi_worker_mirrored", "", "TF_CONFIG is missing, though TFCTL_STRATEGY is multi_worker_mirrored"),
        ("", "{'cluster'", "TF_CONFIG: .* cannot be read; it should look like"),
        ("", '{"cluster": {"worker": ["a:1"]}}', "TF_CONFIG: .* cannot be read"),
        ("", '{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}', "TF_CONFIG: .* cannot be read"),
        ("", '["worker"]', "TF_CONFIG: .* cannot be read"),
        ("", tf_config("worker", 2, worker=2), "TF_CONFIG: the task worker/2 is not in its cluster"),
        ("", tf_config("ps", 0, worker=2), "TF_CONFIG: the task ps/0 is not in its cluster"),
        ("custom", tf_config("actor", 0, actor=2, learner=1), "TF_CONFIG: none of actor, learner is a chief"),
    ],
)
def test_a_contradictory_environment_raises_one_sentence(
    monkeypatch: pytest.MonkeyPatch, strategy: str, config: str, said: str
) -> None:
    job(monkeypatch, strategy, config)
    with pytest.raises(ValueError, match=said) as caught:
        runtime.is_chief()
    assert "\n" not in str(caught.value)


def test_each_process_has_its_own_scratch_directory(tmp_path: Path) -> None:
    """A fork has its own, and takes the parent's from nobody."""
    script = """
import os, sys
import tfctl_runtime as runtime
mine = runtime.scratch_dir()
assert runtime.scratch_dir() == mine and os.stat(mine).st_mode & 0o777 == 0o700
child = os.fork()
if not child:
    print(runtime.scratch_dir() != mine and os.path.isdir(runtime.scratch_dir()), flush=True)
    sys.exit()
os.waitpid(child, 0)
print(os.path.isdir(mine), len(os.listdir(os.path.dirname(mine))))
"""
    told = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=told, capture_output=True, text=True, timeout=20)
    assert done.stdout.split() == ["True", "True", "1"], done.stderr
    assert list(tmp_path.iterdir()) == []
