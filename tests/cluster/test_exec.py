"""`tfctl exec`: which tasks it chooses, what it prints and returns, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from node_tree import wait_until

from tests.cluster.hosts import STAY, Done, Hosts

THREE = STAY + "env: {GREETING: hello}\nroles: {ps: 1, worker: 2}\n"


@pytest.fixture
def job(hosts: Hosts) -> Hosts:
    hosts.ok("start", hosts.file("busy", THREE))
    return hosts


def run(hosts: Hosts, *words: object) -> Done:
    """Run a command to its end, in its own process, because its output is bytes."""
    with hosts.begin(*words) as client:
        return client.done()


def left(hosts: Hosts) -> list[str]:
    return [file for tree in hosts.trees.values() for file in (*tree.files(), *tree.alive()) if "EXEC" in file]


def test_exec_runs_beside_one_task_and_passes_on_its_output_and_exit_code(job: Hosts) -> None:
    script = 'echo "$GREETING $TFCTL_ROLE $TFCTL_INDEX"; printf half; echo oops >&2; exit 3'
    done = run(job, "exec", "busy", "worker", 1, "--", "sh", "-c", script)
    assert (done.code, done.out, done.err) == (3, "hello worker 1\nhalf", "oops\n")
    for words in (("worker/1",), ("worker", 1), ("-j", "busy", "worker", 1), ("busy", "worker/1")):
        done = run(job, "exec", *words, "--", "sh", "-c", "echo $TFCTL_INDEX")
        assert (done.code, done.out) == (0, "1\n"), words
    assert left(job) == []


def test_exec_runs_beside_all_tasks_of_a_role_and_names_each(job: Hosts) -> None:
    done = run(job, "exec", "worker", "--", "sh", "-c", "echo $TFCTL_INDEX; echo oops >&2; exit $((TFCTL_INDEX * 4))")
    assert done.code == 4
    assert sorted(done.out.splitlines()) == ["worker/0 │ 0", "worker/1 │ 1"]
    assert sorted(done.err.splitlines()) == ["job: busy", "worker/0 │ oops", "worker/1 │ oops"]


def test_exit_code_is_that_of_the_first_task_even_if_another_one_fails_before(job: Hosts) -> None:
    script = "test $TFCTL_INDEX = 1 && exit 4; sleep 1; exit 3"
    assert run(job, "exec", "worker", "--", "sh", "-c", script).code == 3


def test_exec_prints_an_object_per_line_and_per_task(job: Hosts) -> None:
    done = run(job, "exec", "worker", "-o", "json", "--", "sh", "-c", "echo $TFCTL_INDEX; exit $((TFCTL_INDEX * 4))")
    objects = [json.loads(line) for line in done.out.splitlines()]
    task = {"job": "busy", "role": "worker"}
    zero = {**task, "index": 0, "host": "node1", "exit_code": 0, "signal": None}
    assert (done.code, objects[2:]) == (4, [zero, {**zero, "index": 1, "host": "node2", "exit_code": 4}])
    assert sorted(each["line"] for each in objects[:2]) == ["0", "1"]
    assert {each["stream"] for each in objects[:2]} == {"stdout"}


def test_exec_says_that_it_does_not_pass_on_its_input(job: Hosts) -> None:
    command = [sys.executable, "-m", "tfctl", *job.words("exec", "busy", "ps", "0", "--", "cat")]
    done = subprocess.run(command, input="data", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "the command has no input: what is piped to tfctl exec is not passed on\n"


def test_exec_passes_on_bytes_unchanged(job: Hosts) -> None:
    with job.begin("exec", "ps", 0, "--", "sh", "-c", r"printf 'a\377\000\033[2Jb'") as client:
        assert client.process.wait(60) == 0
        client._out.seek(0)
        assert client._out.buffer.read() == b"a\xff\x00\033[2Jb"


def test_options_behind_the_dashes_belong_to_the_command(job: Hosts) -> None:
    assert run(job, "exec", "ps", 0, "--", "sh", "-c", 'echo "$@"', "sh", "-i", "--", "x").out == "-i -- x\n"


def test_ctrl_c_ends_the_command_on_all_hosts(job: Hosts) -> None:
    with job.begin("exec", "worker", "--", "sh", "-c", "echo up; exec sleep 600") as client:
        client.until(out="worker/0 │ up\n")
        client.until(out="worker/1 │ up\n")
        client.process.send_signal(2)
        assert client.done().code == 130
    wait_until(lambda: left(job) == [], lambda: str(left(job)), timeout=20)
    assert job.states("busy")["worker/0"] == "running"


def test_a_command_ends_when_its_client_is_killed(job: Hosts) -> None:
    with job.begin("exec", "worker", 0, "--", "sh", "-c", "echo up; exec sleep 600") as client:
        client.until(out="up\n")
        client.process.kill()
    wait_until(lambda: left(job) == [], lambda: str(left(job)))


def test_a_broken_connection_ends_the_command(job: Hosts) -> None:
    with job.begin("exec", "worker", 0, "--", "sh", "-c", "echo up; exec sleep 600") as client:
        client.until(out="up\n")
        job.drop("node1")
        done = client.done()
    assert (done.code, "node1: the connection broke" in done.err) == (4, True), done
    wait_until(lambda: left(job) == [], lambda: str(left(job)))


def test_exec_reports_a_host_that_does_not_answer_and_runs_on_the_others(job: Hosts) -> None:
    job.refuse("node2", "exit 127")
    done = run(job, "exec", "worker", "--", "sh", "-c", "echo here")
    assert (done.code, done.out) == (8, "worker/0 │ here\n")
    assert "node2: /usr/local/sbin/tfctl-node cannot be run" in done.err


def test_exec_exits_with_7_when_the_inventory_lacks_the_host(job: Hosts) -> None:
    done = job.with_inventory(job.without("node2"), "exec", "busy", "worker", 1, "--", "true")
    said = "tfctl: node2, where busy has tasks, is not in this inventory\n  → name another with -i\n"
    assert (done.code, done.out, done.err) == (7, "", said)


def test_exec_names_a_signal(job: Hosts) -> None:
    done = run(job, "exec", "worker", 0, "--", "sh", "-c", "kill -KILL $$")
    assert (done.code, "worker/0: the command was ended by SIGKILL" in done.err) == (137, True), done


def test_exec_refuses_other_words(job: Hosts) -> None:
    for words, code, said in (
        (["worker", "0"], 2, "no command is given"),
        (["--", "true"], 2, "no task specified"),
        (["chief", "--", "true"], 7, "no host has a job 'chief'"),
        (["busy", "chief", "--", "true"], 7, "busy has no chief"),
        (["worker", "7", "--", "true"], 7, "busy has no worker 7"),
        (["busy", "worker", "x", "--", "true"], 2, "'worker x' is not a task"),
    ):
        done = job("exec", *words)
        assert (done.code, done.out) == (code, ""), words
        assert said in done.err, words


def test_exec_runs_beside_all_tasks_of_a_job_that_is_named(job: Hosts) -> None:
    done = run(job, "exec", "busy", "--", "sh", "-c", "echo here")
    lines = [line.split() for line in sorted(done.out.splitlines())]
    assert (done.code, lines) == (0, [[task, "│", "here"] for task in ("ps/0", "worker/0", "worker/1")]), done


def test_exec_after_a_stop_says_that_the_environment_is_gone(job: Hosts) -> None:
    job.ok("stop", "busy")
    done = run(job, "exec", "busy", "worker", 0, "--", "true")
    assert (done.code, "the environment of worker/0 is no longer on" in done.err) == (7, True), done


def test_ssh_logs_in_with_the_settings_of_the_inventory(job: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = job.folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "ssh").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 9\n')
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    done = run(job, "ssh", "worker", 1)
    assert done.code == 9
    words = done.out.splitlines()
    assert words[-2:] == ["--", "127.0.0.1"]
    assert "StrictHostKeyChecking=yes" in words and "user=ops" in words
    assert any(word.startswith("UserKnownHostsFile=") for word in words)
    assert "worker/1 runs on node2" in done.err
    found = json.loads(run(job, "ssh", "worker", 1, "-o", "json").out)
    assert (found["role"], found["index"], found["host"]) == ("worker", 1, "node2")
    assert found["command"] == ["ssh", *words]
    done = run(job, "ssh", "worker")
    assert (done.code, "busy has 2 tasks of role worker" in done.err) == (7, True)
    done = run(job, "ssh", "busy")
    assert (done.code, "which task of busy?\n  → name one, such as ps/0, worker/0" in done.err) == (2, True), done
