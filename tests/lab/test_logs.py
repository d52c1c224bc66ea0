"""`tfctl logs` on real journals: selection, order, filters, and connections that break."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from tests.lab.jobs import Jobs, lines_of, lines_of_task, wait_for

COUNT = """
    command: [sh, -c, "for i in $(seq 40); do echo {role}{index} $i; sleep 0.1; done"]
    roles: {ps: 1, worker: 4}
"""


@pytest.fixture(scope="module")
def counted(module_jobs: Jobs) -> Jobs:
    """A job that has printed 40 lines in each of five tasks, over four seconds."""
    module_jobs.ok("start", module_jobs.file("count", COUNT), "--wait")
    return module_jobs


def test_logs_select_all_tasks_one_role_or_one_task(counted: Jobs) -> None:
    tasks = {task for task, _ in lines_of(counted.ok("logs", "--job", "count"))}
    assert tasks == {"ps/0", "worker/0", "worker/1", "worker/2", "worker/3"}
    assert {task for task, _ in lines_of(counted.ok("logs", "ps", "--job", "count"))} == {"ps/0"}
    expected = [f"worker3 {n}" for n in range(1, 41)]
    for words in (["worker", "3"], ["worker/3"]):
        assert lines_of_task(counted.ok("logs", *words, "--job", "count"), "worker/3") == expected


def test_logs_are_merged_in_order_of_time(counted: Jobs) -> None:
    found = [json.loads(line) for line in counted.ok("logs", "--job", "count", "-o", "json").splitlines()]
    assert len(found) >= 160
    assert [line["time"] for line in found] == sorted(line["time"] for line in found)
    assert set(found[0]) == {"time", "role", "index", "host", "stream", "line"}


def test_logs_are_filtered_by_tail_since_until_and_grep(counted: Jobs) -> None:
    assert len(counted.ok("logs", "worker", "--job", "count", "--tail", 7).splitlines()) == 7
    assert lines_of_task(counted.ok("logs", "worker/2", "--job", "count", "--grep", " 3[89]$"), "worker/2") == [
        "worker2 38",
        "worker2 39",
    ]
    lines = [
        json.loads(line) for line in counted.ok("logs", "worker", "1", "--job", "count", "-o", "json").splitlines()
    ]
    half = counted.ok("logs", "worker", "1", "--job", "count", "--since", lines[20]["time"])
    assert lines_of_task(half, "worker/1") == [line["line"] for line in lines[20:]]
    rest = counted.ok("logs", "worker", "1", "--job", "count", "--until", lines[20]["time"])
    assert lines_of_task(rest, "worker/1") == [line["line"] for line in lines[:20]]


def test_logs_of_a_missing_task_exit_7_and_list_the_tasks(counted: Jobs) -> None:
    done = counted("logs", "worker", "9", "--job", "count")
    assert (done.returncode, done.stdout) == (7, "")
    assert "worker 0 to 3" in done.stderr


def test_logs_print_each_line_unchanged(jobs: Jobs) -> None:
    """journald must not take the prefix of a line for a priority (sd-daemon(3))."""
    printed = ["<3> of 7 tokens", "<1>", "\tindented", "größer ✓", "{'loss': 0.5}", "50%\r100%"]
    job = jobs.file("odd", "command: python3 odd.py\nroles: {worker: 1}\n")
    (job.parent / "odd.py").write_text(f"for line in {printed!r}: print(line)\n")
    assert jobs("start", job, "--wait").returncode == 0
    lines = [json.loads(line)["line"] for line in jobs.ok("logs", "-j", "odd", "-o", "json").splitlines()]
    assert lines == printed


def test_logs_follow_prints_every_line_and_ends_with_the_job(jobs: Jobs) -> None:
    jobs.ok("start", jobs.file("followed", COUNT))
    out = jobs.ok("logs", "-f", "--job", "followed")
    assert {n: len(lines_of_task(out, f"worker/{n}")) for n in range(4)} == dict.fromkeys(range(4), 40)
    assert lines_of_task(out, "worker/0") == [f"worker0 {n}" for n in range(1, 41)]


def test_logs_follow_prints_each_line_once_when_connections_break(jobs: Jobs) -> None:
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
        assert lines_of_task(out, f"worker/{index}") == [f"{index} {n}" for n in range(1, 121)], err
    assert "node2" in err
    assert "Traceback" not in err


def cut(jobs: Jobs, host: str) -> None:
    """Kill every ssh connection to the host, including the one of this command."""
    subprocess.run(jobs.lab.ssh(host, "sudo pkill -KILL -f 'sshd: ops'"), capture_output=True, timeout=20)
