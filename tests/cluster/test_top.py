"""`tfctl top`, and how far a job is, from samples as the guards of its hosts have written them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import STAY, Hosts
from tfctl.node import names, wire

GPU = wire.GpuSample(98, 40213, 61, 310, 1980)


def put(hosts: Hosts, name: str, job: str, *tasks: wire.TaskSample, attempt: int = 1) -> None:
    """Write a sample of these tasks as the guard of a host does."""
    folder = hosts.trees[name] / names.samples_dir(job, attempt)
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps(wire.encode(wire.Sample(round(time.time(), 1), 10, 20, tasks)))
    (folder / "10s.jsonl").write_text(line + "\n")


def worker(index: int, **known: Any) -> wire.TaskSample:
    return wire.TaskSample("worker", index, **known)


@pytest.fixture
def digits(hosts: Hosts) -> Hosts:
    """A job with a worker on each of three hosts: the last one is silent, and the GPU of the second one idle."""
    hosts.ok("start", hosts.file("digits", STAY + "roles: {worker: 3}\n"))
    percent = {"step": 250, "total": 1000, "percent": 25.0, "left": 300.0, "rate": 50.0, "pace": 2.5}
    put(hosts, "node1", "digits", worker(0, cpu=3.9, memory=12500, silent=2.0, gpus=(GPU,), **percent))
    put(hosts, "node2", "digits", worker(1, cpu=0.1, memory=900, silent=1.0, gpus=(GPU._replace(use=0),),
                                         step=400, total=1000, percent=40.0, left=200.0, rate=60.0))  # fmt: skip
    put(hosts, "node3", "digits", worker(2, cpu=0.0, memory=5, silent=500.0))
    return hosts


def test_status_and_list_show_how_far_the_slowest_task_is_and_how_fast_the_job(digits: Hosts) -> None:
    found = digits("status", "digits", "-o", "json").objects[0]
    assert found["progress"] == {
        "step": 250, "total": 1000, "epoch": None, "percent": 25.0, "rate": 110.0, "left_s": 300.0,
    }  # fmt: skip
    second = digits.ok("status", "digits").splitlines()[1]
    assert second == "  step 250 of 1,000, 25 %, 110 examples/s, 5 min left"
    row = digits.ok("list").splitlines()[1]
    assert "25 %, 5 min left" in row
    assert digits("list", "-o", "json").objects[0]["jobs"][0]["progress"]["percent"] == 25.0


def test_a_job_of_which_nothing_is_known_has_no_progress(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("quiet", STAY + "roles: {worker: 1}\n"))
    assert hosts("status", "quiet", "-o", "json").objects[0]["progress"] is None
    assert "PROGRESS" not in hosts.ok("list")


def test_top_prints_tasks_that_need_attention_first_with_what_they_use(digits: Hosts) -> None:
    shown = digits.ok("top", "digits")
    rows = [re.split(r"\s{2,}", line) for line in shown.splitlines()]
    start = next(number for number, row in enumerate(rows) if row[0] == "TASK")
    assert rows[start] == ["TASK", "HOST", "STATE", "CPU", "MEM", "GPU", "STEP", "RATE", "LAST LINE"]
    assert rows[start + 1] == [
        "worker/1",
        "node2",
        "running",
        "0.1",
        "900 M",
        "0 % idle 39 G 61°",
        "400",
        "60/s",
        "1 s",
    ]
    assert (rows[start + 2][0], rows[start + 2][2], rows[start + 2][-1]) == ("worker/2", "silent", "8 min")
    assert rows[start + 3][:5] == ["worker/0", "node1", "running", "3.9", "12 G"]
    assert {row[0] for row in rows[start + 6 :]} == {"node1", "node2", "node3"}
    assert max(map(len, shown.splitlines())) <= 80


def test_top_prints_json_with_bytes_and_with_null_for_what_is_unknown(digits: Hosts) -> None:
    found = digits("top", "-o", "json").objects[0]
    assert [*found] == ["jobs", "tasks", "hosts"]
    assert found["jobs"] == [
        {"job": "digits", "attempt": 1, "state": "running", "progress": found["jobs"][0]["progress"]}
    ]
    first = found["tasks"][0]
    assert [*first] == ["job", "task", "host", "state", "cpu", "memory", "gpus", "step", "rate", "silent_for"]
    assert (first["task"], first["memory"], first["cpu"]) == ("worker/1", 900 * 2**20, 0.1)
    assert found["tasks"][1]["step"] is None
    assert [(host["host"], host["gpus"], host["gpus_free"]) for host in found["hosts"]] == [
        (name, 0, 0) for name in ("node1", "node2", "node3")
    ]


def test_top_without_jobs_shows_the_hosts(hosts: Hosts) -> None:
    shown = hosts.ok("top")
    assert shown.splitlines()[0] == "no job runs; start one: tfctl start job.yaml"
    assert "node3" in shown


def test_top_shows_a_host_that_does_not_answer_and_goes_on(digits: Hosts) -> None:
    digits.refuse("node2", "exit 127")
    done = digits("top", "digits")
    assert done.code == 8
    assert re.search(r"^worker/1 +node2 +unknown", done.out, re.MULTILINE)
    assert re.search(r"^worker/0 +node1 +running", done.out, re.MULTILINE)
    assert "node2" in done.err


def read_until(terminal: int, text: str, within: float = 30) -> str:
    """Return what the terminal has shown once it contains the text."""
    found, until = "", time.monotonic() + within
    while text not in found:
        assert time.monotonic() < until, found
        if select.select([terminal], [], [], 0.5)[0]:
            found += os.read(terminal, 65536).decode(errors="replace")
    return found


def test_top_on_a_terminal_is_drawn_again_and_ends_with_q(digits: Hosts) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "tfctl", "top", "digits", "-i", str(digits.inventory)]
    environment = {**os.environ, "TERM": "xterm", "LINES": "24", "COLUMNS": "80", "PYTHONPATH": str(Path.cwd())}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    child = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        first = read_until(ours, "q quit")
        assert first.startswith("\033[?1049h") and "silent" in first
        put(digits, "node3", "digits", worker(2, cpu=1.5, memory=5, silent=0.5))
        os.write(ours, b" ")
        again = read_until(ours, "1.5")
        assert "attempt 1" not in again, "only lines that have changed are drawn"
        os.write(ours, b"q")
        rest = read_until(ours, "\033[?1049l")
        assert rest
        assert child.wait(10) == 0
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)
        os.close(ours)
