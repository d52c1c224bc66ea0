"""`tfctl logs` on real journals: whose lines, which of them, in what order, and over a broken connection."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from jobs import Jobs, lines_of, said_by, wait_for

COUNT = """
    command: [sh, -c, "for i in $(seq 40); do echo {role}{index} $i; sleep 0.1; done"]
    roles: {ps: 1, worker: 4}
"""


@pytest.fixture(scope="module")
def counted(module_jobs: Jobs) -> Jobs:
    """A job that has printed 40 lines in each of five tasks, over four seconds."""
    module_jobs.ok("start", module_jobs.file("count", COUNT), "--wait")
    return module_jobs


def test_all_one_role_one_task(counted: Jobs) -> None:
    tasks = {task for task, _ in lines_of(counted.ok("logs", "--job", "count"))}
    assert tasks == {"ps/0", "worker/0", "worker/1", "worker/2", "worker/3"}
    assert {task for task, _ in lines_of(counted.ok("logs", "ps", "--job", "count"))} == {"ps/0"}
    expected = [f"worker3 {n}" for n in range(1, 41)]
    for words in (["worker", "3"], ["worker/3"]):
        assert said_by(counted.ok("logs", *words, "--job", "count"), "worker/3") == expected


def test_they_are_merged_in_the_order_of_time(counted: Jobs) -> None:
    found = [json.loads(line) for line in counted.ok("logs", "--job", "count", "-o", "json").splitlines()]
    assert len(found) >= 160
    assert [line["time"] for line in found] == sorted(line["time"] for line in found)
    assert set(found[0]) == {"time", "role", "index", "host", "stream", "line"}


def test_tail_since_until_grep(counted: Jobs) -> None:
    assert len(counted.ok("logs", "worker", "--job", "count", "--tail", 7).splitlines()) == 7
    assert said_by(counted.ok("logs", "worker/2", "--job", "count", "--grep", " 3[89]$"), "worker/2") == [
        "worker2 38",
        "worker2 39",
    ]
    lines = [
        json.loads(line) for line in counted.ok("logs", "worker", "1", "--job", "count", "-o", "json").splitlines()
    ]
    half = counted.ok("logs", "worker", "1", "--job", "count", "--since", lines[20]["time"])
    assert said_by(half, "worker/1") == [line["line"] for line in lines[20:]]
    rest = counted.ok("logs", "worker", "1", "--job", "count", "--until", lines[20]["time"])
    assert said_by(rest, "worker/1") == [line["line"] for line in lines[:20]]


def test_a_task_that_is_not_there(counted: Jobs) -> None:
    done = counted("logs", "worker", "9", "--job", "count")
    assert (done.returncode, done.stdout) == (7, "")
    assert "worker 0 to 3" in done.stderr


def test_a_line_arrives_as_it_was_printed(jobs: Jobs) -> None:
    """Also one that looks as if a daemon had told journald its priority (sd-daemon(3))."""
    printed = ["<3> of 7 tokens", "<1>", "\tindented", "größer ✓", "{'loss': 0.5}", "50%\r100%"]
    job = jobs.file("odd", "command: python3 odd.py\nroles: {worker: 1}\n")
    (job.parent / "odd.py").write_text(f"for line in {printed!r}: print(line)\n")
    assert jobs("start", job, "--wait").returncode == 0
    told = [json.loads(line)["line"] for line in jobs.ok("logs", "-j", "odd", "-o", "json").splitlines()]
    assert told == printed


def test_following_ends_with_the_job_and_misses_nothing(jobs: Jobs) -> None:
    jobs.ok("start", jobs.file("followed", COUNT))
    out = jobs.ok("logs", "-f", "--job", "followed")
    assert {n: len(said_by(out, f"worker/{n}")) for n in range(4)} == dict.fromkeys(range(4), 40)
    assert said_by(out, "worker/0") == [f"worker0 {n}" for n in range(1, 41)]


def test_lines_come_once_though_connections_break(jobs: Jobs) -> None:
    text = """
        command: [sh, -c, "for i in $(seq 120); do echo {index} $i; sleep 0.05; done"]
        roles: {worker: 4}
    """
    process = jobs.begin("start", jobs.file("breaks", text), "--follow")
    wait_for(lambda: jobs("status", "breaks").returncode == 0, 20)
    for _ in range(3):
        time.sleep(1)
        cut(jobs, "node2")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    for index in range(4):
        assert said_by(out, f"worker/{index}") == [f"{index} {n}" for n in range(1, 121)], err
    assert "node2" in err
    assert "Traceback" not in err


def cut(jobs: Jobs, host: str) -> None:
    """Every ssh connection to it ends, this one too."""
    subprocess.run(jobs.lab.ssh(host, "sudo pkill -KILL -f 'sshd: ops'"), capture_output=True, timeout=20)
