"""`tfctl trace` and `tfctl why` against three hosts, whose py-spy is a fake that prints what a real one has printed."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from node_tree import wait_until

from tests.cluster.hosts import Hosts
from tfctl.node import names, usage
from tfctl.node.system import System

TICK = "n=0; while :; do n=$((n + 1)); echo tick $n; /bin/sleep 0.5; done\n"
USER = {"name": "<module>", "filename": "train.py", "short_filename": "train.py", "line": 11}
REDUCE = {"name": "collective_reduce_v2", "filename": "x", "line": 1267,
          "short_filename": "tensorflow/python/ops/gen_collective_ops.py"}  # fmt: skip
NEXT = {"name": "iterator_get_next", "filename": "x", "line": 3024,
        "short_filename": "tensorflow/python/ops/gen_dataset_ops.py"}  # fmt: skip


def pids(hosts: Hosts, host: str, job: str, index: int) -> list[int]:
    return usage.pids(System(str(hosts.trees[host].path)), job, ("worker", index))


def show_stacks(hosts: Hosts, host: str, *frames: dict[str, Any]) -> None:
    """Let the fake py-spy of a host print these frames of the main thread, and show its processes as Python's."""
    tree = hosts.trees[host]
    program = tree / names.PY_SPY
    program.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([{"thread_name": "MainThread", "active": False, "frames": list(frames)}])
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o755)


def show_processes(hosts: Hosts, job: str) -> None:
    """Put the processes of the tasks where proc(5) has them, with Python as their program."""
    for index, host in enumerate(hosts.names):
        # systemd has the cgroup of a unit in that of its slice, the fake of it does not.
        groups = hosts.trees[host] / "sys/fs/cgroup/systemd"
        group = groups / names.cgroup(job, "worker", index).lstrip("/")
        group.parent.mkdir(parents=True, exist_ok=True)
        group.symlink_to(groups / "tfctl.slice" / group.name)
        for pid in pids(hosts, host, job, index):
            folder = hosts.trees[host] / f"proc/{pid}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stat").unlink(missing_ok=True)
            (folder / "stat").symlink_to(f"/proc/{pid}/stat")
            (folder / "exe").unlink(missing_ok=True)
            (folder / "exe").symlink_to("/usr/bin/python3.11")
            (folder / "wchan").write_text("futex_wait_queue")


@pytest.fixture
def ticking(hosts: Hosts) -> Hosts:
    """A job with a worker on each host. All print a line every 0.5 s; the first two are in a collective operation."""
    hosts.ok("start", hosts.file("ticks", "command: [sh, tick]\nroles: {worker: 3}\n", tick=TICK))
    wait_until(lambda: hosts.ok("logs", "-j", "ticks").count("tick 3") == 3, timeout=30)
    for host in ("node1", "node2"):
        show_stacks(hosts, host, REDUCE, USER)
    show_stacks(hosts, "node3", NEXT, USER)
    show_processes(hosts, "ticks")
    return hosts


def test_trace_folds_tasks_that_do_the_same_and_shows_the_exception_first(ticking: Hosts) -> None:
    assert ticking.ok("trace", "ticks").splitlines() == [
        "ticks  attempt 1  running",
        "worker/2 on node3: waits for its input (train.py:11, in <module>)",
        "worker/0, worker/1: waits for the other workers in a collective operation (train.py:11, in <module>)",
    ]


def test_trace_of_a_task_shows_its_stack(ticking: Hosts) -> None:
    assert ticking.ok("trace", "ticks", "worker", 2).splitlines()[1:] == [
        "  thread MainThread (idle)",
        "    iterator_get_next (tensorflow/python/ops/gen_dataset_ops.py:3024)",
        "    <module> (train.py:11)",
    ]
    [task] = ticking("trace", "ticks", "worker", 1, "-o", "json").objects[0]["tasks"]
    assert (task["host"], task["process"], task["where"]) == ("node2", "running", "train.py:11, in <module>")
    assert [frame["name"] for frame in task["threads"][0]["frames"]] == ["collective_reduce_v2", "<module>"]


def test_trace_shows_names_of_functions_without_control_characters(ticking: Hosts) -> None:
    show_stacks(ticking, "node3", {**USER, "name": "evil\x1b[31m\nThread 1: forged"})
    shown = ticking.ok("trace", "ticks", "worker", 2)
    assert "\x1b" not in shown and "\nThread 1" not in shown


def test_trace_of_a_host_without_py_spy_says_how_to_install_it(ticking: Hosts) -> None:
    (ticking.trees["node3"] / names.PY_SPY).unlink()
    assert "worker/2 on node3: py-spy is not installed; run: tfctl provision" in ticking.ok("trace")
    ticking.refuse("node2", "exit 7")
    ticking.drop("node2")
    done = ticking("trace")
    assert done.code != 0 and "worker/0 on node1: waits for the other workers" in done.out, done


def test_why_says_that_nothing_is_wrong_while_all_tasks_print(ticking: Hosts) -> None:
    shown = ticking.ok("why").splitlines()
    assert shown[0] == "nothing is wrong with ticks: it is running"
    found = ticking("why", "-o", "json").objects[0]
    assert (found["verdict"], found["culprits"], found["job"], found["state"]) == ("healthy", [], "ticks", "running")


def test_why_names_a_task_that_is_stopped_and_how_to_continue_it(ticking: Hosts) -> None:
    [*processes] = pids(ticking, "node2", "ticks", 1)
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        done = ticking("why", "ticks")
        first, second, *_ = done.out.splitlines()
        assert (done.code, first) == (0, "worker/1 on node2 is stopped by a signal or a debugger")
        assert second.startswith("  → continue it: on node2, kill -CONT ")
        [culprit] = ticking("why", "-o", "json").objects[0]["culprits"]
        assert (culprit["task"], culprit["host"], culprit["kind"]) == ("worker/1", "node2", "stopped")
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


def test_status_names_the_first_error_as_the_guard_of_its_host_has_noted_it(guarded: Hosts) -> None:
    script = "[ $1 = 1 ] || exec /bin/sleep 600; echo \"ModuleNotFoundError: No module named 'einops'\"; exit 1\n"
    text = "command: [sh, train, '{index}']\nroles: {worker: 3}\npolicy: {on_failure: fail}\n"
    guarded.ok("start", guarded.file("noted", text, train=script))

    def shown() -> dict[str, Any]:
        return dict(guarded("status", "noted", "-o", "json").objects[0])

    wait_until(lambda: (shown()["why"] or {}).get("kind") == "missing module", timeout=40)
    cause, remedy = guarded.ok("status", "noted").splitlines()[2:4]
    assert cause == "  worker/1 on node2 cannot import einops: it is not installed there"
    assert remedy.startswith("    → name its package in a requirements file")
    [noted] = guarded.trees["node2"].path.glob("var/lib/tfctl/jobs/noted/1/guard/causes.json")
    assert noted.stat().st_mode & 0o777 == 0o600


def test_why_names_the_first_error_of_a_job_that_has_failed(hosts: Hosts) -> None:
    script = "echo begin; [ $1 = 1 ] || exec /bin/sleep 600; echo 'Traceback (most recent call last):'; " \
             "echo \"ModuleNotFoundError: No module named 'einops'\"; exit 1\n"  # fmt: skip
    job = "command: [sh, train, '{index}']\nroles: {worker: 3}\n"
    done = hosts("start", hosts.file("broken", job, train=script), "--wait")
    assert done.code == 100
    *_, cause, remedy = done.err.splitlines()
    assert cause == "worker/1 on node2 cannot import einops: it is not installed there"
    assert remedy.startswith("  → name its package in a requirements file")
    told = hosts("wait", "-o", "json").objects[0]["why"]
    assert (told["task"], told["host"], told["kind"], told["sentence"]) == (
        "worker/1",
        "node2",
        "missing module",
        cause,
    )
    first, second, *rest = hosts.ok("why").splitlines()
    assert first == "worker/1 on node2 cannot import einops: it is not installed there"
    assert second.startswith("  → name its package in a requirements file")
    assert any("No module named 'einops'" in line for line in rest)
