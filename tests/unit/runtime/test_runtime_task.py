"""Which task this is; and that nothing but the standard library is needed to know it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from a_job import PS, job, tf_config

import tfctl_runtime as runtime
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
def test_it_needs_nothing_but_the_standard_library_of_any_python(python: str) -> None:
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
def test_an_environment_that_contradicts_itself_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, strategy: str, config: str, said: str
) -> None:
    job(monkeypatch, strategy, config)
    with pytest.raises(ValueError, match=said) as caught:
        runtime.is_chief()
    assert "\n" not in str(caught.value)


def test_a_scratch_directory_is_of_one_process(tmp_path: Path) -> None:
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
