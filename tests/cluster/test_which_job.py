"""`status`, `list`, `stop` and `wait`: which job they choose, and what they print about it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from loopback import Impostor
from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts

ONE = STAY + "roles: {worker: 1}\n"


def test_commands_exit_with_7_when_there_is_no_such_job(hosts: Hosts) -> None:
    for words in (["status"], ["logs"], ["wait"]):
        done = hosts(*words)
        assert (done.code, done.out) == (7, ""), words
        assert "no host has a job\n  → start one" in done.err
    for words in (["status", "never"], ["wait", "never"], ["stop", "never"]):
        done = hosts(*words)
        assert (done.code, done.out) == (7, ""), words
        assert "no host has a job 'never'\n  → tfctl list shows the jobs that exist" in done.err
    done = hosts("stop")
    assert done.code == 2
    assert "no job is running" in done.err
    assert hosts("list").out == ""
    assert hosts("list", "-o", "json").objects == [{"jobs": []}]


@pytest.mark.extended
def test_no_command_says_that_a_job_is_gone_while_its_host_is_silent(hosts: Hosts, tmp_path: Path) -> None:
    hosts.ok("start", hosts.file("there", STAY + "roles: {worker: {replicas: 1, hosts: node2}}\n"))
    with contextlib.closing(Impostor(hang_up=True)) as silent:
        inventory = hosts.told("node2", ansible_port=silent.port)
        for words in (
            ["status"], ["wait"], ["logs"], ["logs", "-j"], ["exec", "-j"], ["events"], ["report"], ["pull"],
            ["restart"],
        ):  # fmt: skip
            rest = {"exec": ["worker", "--", "true"], "pull": [str(tmp_path)]}.get(words[0], [])
            done = hosts.with_inventory(inventory, *words, "there", *rest)
            assert (done.code, done.out) == (4, ""), (words, done)
            assert "no host has a job 'there', but not all hosts have answered:\n  node2: " in done.err, words
        for words in (["status"], ["events"]):
            done = hosts.with_inventory(inventory, *words)
            assert (done.code, "no host has a job, but not all hosts have answered:\n  node2: " in done.err) == (
                4,
                True,
            )
        done = hosts.with_inventory(inventory, "stop")
        assert (done.code, "no job is running, but not all hosts have answered:\n  node2: " in done.err) == (4, True)

        hosts.ok("start", hosts.file("here", STAY + "roles: {worker: {replicas: 1, hosts: node1}}\n"))
        done = hosts.with_inventory(inventory, "logs", "there")
        said = "no host has a job 'there', and here has no role there, but not all hosts have answered:\n  node2: "
        assert (done.code, said in done.err) == (4, True), done
    assert hosts.states("there") == {"worker/0": "running"}


def test_commands_choose_the_only_running_job_or_ask_which_one(hosts: Hosts) -> None:
    first = hosts.file("first", ONE)
    hosts.ok("start", first)
    done = hosts("status", "-o", "json")
    assert (done.objects[0]["job"], done.err) == ("first", "job: first\n")
    for words in ((first,), ("-j", "first")):
        assert hosts("status", *words, "-o", "json").objects[0]["run"] == done.objects[0]["run"]

    hosts.ok("start", hosts.file("second", ONE))
    assert hosts("status", "-o", "json").objects[0]["job"] == "second"
    done = hosts("stop")
    assert done.code == 2
    assert "several jobs are running: second, first" in done.err
    rows = [re.split(r"\s{2,}", line) for line in hosts.ok("list").splitlines()]
    assert rows[0] == ["JOB", "ATTEMPT", "STATE", "STRATEGY", "TASKS", "HOSTS", "STARTED", "LASTED"]
    assert [row[:6] for row in rows[1:]] == [[job, "1", "running", "custom", "1", "1"] for job in ("second", "first")]
    assert [each["job"] for each in hosts("list", "-j", "first", "-o", "json").objects[0]["jobs"]] == ["first"]

    assert hosts("stop", first).err == "first: stopped worker/0\n"
    done = hosts("stop")
    assert (done.code, done.err) == (0, "job: second\nsecond: stopped worker/0\n")
    assert hosts("wait", "second").code == 103
    assert hosts.alive() == []


def test_commands_reject_words_that_are_not_a_job(hosts: Hosts) -> None:
    for words, code, said in (
        (["status", "one", "-j", "two"], 2, "two jobs specified: one and two"),
        (["status", "Not_A_Job"], 2, "'Not_A_Job' is neither a job's name nor a job file"),
        (["stop", "./none.yaml"], 3, "none.yaml: no such job file"),
        (["wait", "--timeout", "soon", "x"], 2, "--timeout: 'soon' is not a duration"),
        (["start", "./none.yaml", "--timeout", "5s"], 2, "add --wait or --follow"),
    ):
        done = hosts(*words)
        assert (done.code, done.out) == (code, ""), words
        assert said in done.err


def test_stop_without_a_name_ends_the_remaining_tasks_of_an_ended_job(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {index} = 0 || exec sleep 600; exit 3']\nroles: {worker: 2}\n"
    hosts.ok("start", hosts.file("over", text))
    wait_until(lambda: hosts.status("over")["state"] == "failed")
    assert hosts("stop").err == "job: over\nover: stopped worker/1\n"
    assert "no job is running" in hosts("stop").err
    assert hosts("stop", "over").err == "over: nothing was running\n"


@pytest.mark.extended
@pytest.mark.parametrize(("ending", "state", "code"), [("exit 0", "succeeded", 0), ("exit 3", "failed", 100)])
def test_stop_keeps_how_a_job_has_ended_when_it_ends_a_task_that_was_left(
    hosts: Hosts, ending: str, state: str, code: int
) -> None:
    text = f"command: [sh, -c, 'test {{index}} = 0 || exec sleep 600; {ending}']\nroles: {{worker: 2}}\n"
    hosts.ok("start", hosts.file("ended", text + "policy: {success: worker0}\n"))
    wait_until(lambda: hosts.status("ended")["state"] == state)
    before = hosts.status("ended")
    hosts.ok("stop", "ended")
    after = hosts.status("ended")
    assert {key: after[key] for key in ("state", "reason", "finished")} == {
        key: before[key] for key in ("state", "reason", "finished")
    }
    assert hosts("wait", "ended").code == code
    assert hosts.alive() == []


@pytest.mark.extended
@pytest.mark.parametrize("late", [0.5, 12.0])
def test_stop_marks_every_host_before_it_ends_a_task_on_any(late: float, hosts: Hosts) -> None:
    """worker/1 fails as soon as worker/0 ends, as a TensorFlow worker without its chief. node2 may be asked later than
    node1 waits for a client that is silent."""
    flag = hosts.trees["node1"] / "ended"
    script = f"""
        test $1 = 0 || {{ until test -e {flag}; do sleep 0.05; done; exit 3; }}
        trap 'touch {flag}; sleep 1; exit 0' TERM
        while :; do sleep 0.05; done
    """
    hosts.trees["node1"].path.chmod(0o777)
    hosts.ok("start", hosts.file("chain", 'command: [sh, run, "{index}"]\nroles: {worker: 2}\n', run=script))
    hosts.hurry("node1", 10)
    with hosts.delayed("node2", "stop") as (reached, release), hosts.begin("stop", "chain") as client:
        wait_until(reached)
        time.sleep(late)
        release()
        assert client.done().code == 0
    assert set(hosts.states("chain").values()) == {"stopped"}
    assert hosts("wait", "chain").code == 103


@pytest.mark.extended
def test_stop_exits_by_the_hosts_of_the_job_alone(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("alone", ONE))
    hosts.refuse("node3", "exit 127")
    done = hosts("stop", "alone")
    assert done.code == 0, done
    assert done.err.startswith("node3: /usr/local/sbin/tfctl-node cannot be run\n")
    assert done.err.endswith("alone: stopped worker/0\n")
    done = hosts("stop", "nonesuch")
    assert (done.code, "no host has a job 'nonesuch'; node3 did not answer" in done.err) == (7, True)


@pytest.mark.extended
def test_commands_fail_when_the_inventory_that_is_set_does_not_exist(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.ok("start", hosts.file("set", ONE))
    done = hosts.with_inventory(None, "status", "set")
    assert (done.code, done.err) == (0, f"inventory: {hosts.inventory}, last used from {hosts.folder}\n")
    monkeypatch.setenv("ANSIBLE_INVENTORY", str(hosts.folder / "none.ini"))
    done = hosts.with_inventory(None, "stop", "set")
    assert (done.code, done.out) == (3, "")
    assert "none.ini: no such inventory" in done.err
    assert hosts.ok("stop", "set") == ""


@pytest.mark.extended
def test_wait_says_once_that_a_task_cannot_be_stopped_while_an_evaluator_goes_on(hosts: Hosts) -> None:
    flag = hosts.folder / "evaluated"
    text = f"""\
        command: [sh, -c, "exec sleep 600"]
        roles:
          chief: {{replicas: 1, hosts: node1, command: [sh, -c, exit 0]}}
          ps: {{replicas: 1, hosts: node2}}
          evaluator: {{replicas: 1, hosts: node3, command: [sh, -c, "until [ -e {flag} ]; do sleep 0.1; done"]}}
        policy: {{drain: 60s}}
        """
    hosts.ok("start", hosts.file("evaluated-late", text))
    hosts.lose("node2", "stop")
    with hosts.begin("wait", "evaluated-late") as client:
        client.until(err="not everything was stopped: node2: ")
        flag.touch()
        done = client.done()
    assert (done.code, done.err.count("not everything was stopped")) == (0, 1), done.err


@pytest.mark.extended
def test_wait_with_timeout_0_returns_the_state_at_once(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("asked", ONE))
    assert hosts("wait", "--timeout", "0").code == 101
    hosts.ok("stop", "asked")
    assert hosts("wait", "--timeout", "0s").code == 103


def test_status_prints_every_field_of_a_failed_job(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {index} = 0 || exec sleep 600; kill -KILL $$']\nroles: {worker: 3}\n"
    hosts.ok("start", hosts.file("said", text + "policy: {clean: none}\n"))
    assert hosts("wait", "said").code == 100
    found = hosts.status("said", with_ages=True)
    first, second = found["tasks"][:2]
    assert {key: found[key] for key in ("job", "attempt", "state", "strategy", "inventory", "reason")} == {
        "job": "said", "attempt": 1, "state": "failed", "strategy": "custom", "inventory": str(hosts.inventory),
        "reason": "worker/0 on node1 failed with SIGKILL",
    }  # fmt: skip
    assert re.fullmatch("[0-9a-f]{8}", found["run"])
    times = [found.pop("started"), first.pop("started"), first.pop("finished"), found.pop("finished")]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time in times)
    assert times == sorted(times)
    assert second["started"] >= times[0]
    assert first == {
        "role": "worker", "index": 0, "host": "node1", "address": "10.9.0.1", "port": 23400,
        "unit": "tfctl-said-worker-0.service", "state": "failed", "exit_code": None, "signal": "SIGKILL",
        "oom": False, "restarts": 0, "reason": "", "last_line_age": None, "gpus": [],
    }  # fmt: skip
    assert (second["state"], second["exit_code"], second["signal"], second["finished"]) == ("running", None, None, None)

    head, reason, remedy, left, *rows = hosts.ok("status", "said").splitlines()
    assert head == "said  attempt 1  custom  none  failed"
    assert reason == "  worker/0 on node1 failed with SIGKILL"
    assert remedy == "    → see its last lines: tfctl logs said worker 0"
    assert (
        left
        == "  still alive: worker/1 on node2 and worker/2 on node3; tfctl stop said stops every task under this name"
    )
    assert [re.split(r"\s{2,}", row)[:5] for row in rows[:2]] == [
        ["TASK", "HOST", "ADDRESS", "STATE", "EXIT"],
        ["worker/0", "node1", "10.9.0.1:23400", "failed", "SIGKILL"],
    ]


@pytest.mark.extended
def test_status_and_list_name_a_host_that_does_not_answer(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("part", STAY + "roles: {worker: 3}\n"))
    hosts.refuse("node3", "exit 127")
    done = hosts("status", "part", "-o", "json")
    assert done.code == 8
    assert [task["state"] for task in done.objects[0]["tasks"]] == ["running", "running", "unknown"]
    assert (done.objects[0]["state"], done.objects[0]["reason"]) == ("unknown", "no answer from node3")
    assert "node3: /usr/local/sbin/tfctl-node cannot be run" in done.err
    stopped = hosts("stop", "part")
    assert stopped.code == 8
    assert "node3" in stopped.err
    assert hosts.alive() == ["tfctl-part-worker-2.service"]
    for name in ("node1", "node2"):
        hosts.refuse(name, "exit 127")
    assert hosts("status", "part").code == 8
    for name in hosts.names:
        hosts.heal(name)
    assert hosts("stop", "part").code == 0


@pytest.mark.extended
@pytest.mark.parametrize("goes_on", [True, False])
def test_commands_name_a_host_of_the_job_that_the_inventory_lacks(hosts: Hosts, tmp_path: Path, goes_on: bool) -> None:
    command = f"command: [sh, -c, 'echo begun; test {goes_on} = False || exec sleep 600']\n"
    hosts.ok("start", hosts.file("wide", command + "roles: {worker: 3}\n"))
    wait_until(lambda: hosts.ok("logs", "wide").count("begun") == 3 and (goes_on or hosts("wait", "wide").code == 0))
    two = hosts.without("node3")
    said = "tfctl: node3, where wide has tasks, is not in this inventory\n  → name another with -i\n"

    done = hosts.with_inventory(two, "status", "wide")
    assert (done.code, "worker/0" in done.out, done.err) == (4, True, said)
    done = hosts.with_inventory(two, "logs", "-j", "wide")
    assert (done.code, done.err) == (7, said)
    assert sorted(done.out.splitlines()) == ["worker/0 │ begun", "worker/1 │ begun"]
    done = hosts.with_inventory(two, "logs", "-j", "wide", "worker/0")
    assert (done.code, done.out, done.err) == (0, "worker/0 │ begun\n", "")
    done = hosts.with_inventory(two, "wait", "wide", "--timeout", "3s")
    assert (done.code, done.err) == (7, said)
    for verb in ("ssh", "logs"):
        done = hosts.with_inventory(two, verb, "wide", "worker", 2)
        assert (done.code, done.out, done.err) == (7, "", said), verb
    done = hosts.with_inventory(two, "pull", "wide", tmp_path)
    assert (done.code, done.err.endswith(said), done.err.count(said)) == (7, True, 1)
    assert (tmp_path / "attempt-1/worker-1.log").read_text() == "begun\n"


@pytest.mark.extended
def test_wait_does_not_need_a_host_that_does_not_decide_how_the_job_ends(hosts: Hosts) -> None:
    roles = "roles: {chief: {replicas: 1, hosts: node1, command: [sleep, '3']}, ps: {replicas: 1, hosts: node3}}\n"
    hosts.ok("start", hosts.file("narrow", STAY + roles + "policy: {success: chief}\n"))
    two = hosts.without("node3")
    assert hosts.with_inventory(two, "wait", "narrow").code == 0


def test_status_list_and_nodes_show_what_they_have_and_exit_with_4_when_a_host_cannot_be_reached(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("three", STAY + "roles: {worker: 3}\n"))
    hosts.ok("start", hosts.file("two", STAY + "roles: {worker: 2}\n"))
    with contextlib.closing(Impostor()) as silent:
        inventory = hosts.told("node3", ansible_port=silent.port)
        for words in (["status", "three"], ["list"], ["list", "-j", "three"], ["nodes"]):
            done = hosts.with_inventory(inventory, *words)
            assert (done.code, "three" in done.out, "node3" in done.err) == (4, True, True), done
            shown = hosts.with_inventory(inventory, *words, "-o", "json")
            assert (shown.code, len(shown.objects), "error" in shown.objects[0]) == (4, 1, False), shown
        for words in (["status", "two"], ["list", "-j", "two"]):
            done = hosts.with_inventory(inventory, *words)
            assert (done.code, "node3" in done.err) == (0, True), "the job does not use it"


def test_status_with_watch_ends_when_the_job_ends(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("watched", ONE))
    with hosts.begin("status", "--watch", "-o", "json") as client:
        client.until(out='"running"')
        hosts.ok("stop", "watched")
        done = client.done()
    assert done.code == 0
    states = [found["state"] for found in done.objects]
    assert (states[0], states[-1]) == ("running", "stopped")


@pytest.mark.extended
def test_a_job_of_another_directory_is_stopped_only_by_its_name(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.ok("start", hosts.file("theirs", ONE))
    monkeypatch.chdir(tmp_path)
    for verb in ("stop", "restart"):
        done = hosts(verb)
        assert (done.code, done.out) == (2, ""), done
        said = f"tfctl: theirs was not started from this directory\n  → name it: tfctl {verb} theirs\n"
        assert done.err == "job: theirs\n" + said
    assert hosts("restart", "worker", 0).code == 2
    assert hosts("restart", "--dry-run").code == 0
    assert hosts.status("theirs")["tasks"][0]["restarts"] == 0
    # What is restarted from here is one's own.
    hosts.ok("restart", "theirs")
    assert hosts("stop").err == "job: theirs\ntheirs: stopped worker/0\n"


@pytest.mark.extended
@pytest.mark.parametrize(("answer", "code", "state"), [("n", 2, "running"), ("y", 0, "stopped")])
def test_stop_asks_on_a_terminal(answer: str, code: int, state: str, hosts: Hosts, tmp_path: Path) -> None:
    hosts.ok("start", hosts.file("asked", ONE))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tfctl", *hosts.words("stop")]
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        process = subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += terminal.read(1000)
        terminal.write(f"{answer}\n".encode())
        assert process.wait(60) == code
    assert b"asked was not started from this directory. Stop it?" in said
    assert hosts.states("asked") == {"worker/0": state}


@pytest.mark.extended
def test_the_inventory_is_that_of_the_directory_or_a_parent(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.ok("start", hosts.file("near", ONE))
    below = hosts.folder / "near" / "deeper"
    below.mkdir()
    monkeypatch.chdir(below)
    done = hosts.with_inventory(None, "status", "near")
    assert (done.code, done.err) == (0, f"inventory: {hosts.inventory}, last used from {hosts.folder}\n")
    monkeypatch.chdir(tmp_path)
    done = hosts.with_inventory(None, "status", "near")
    assert (done.code, "no inventory specified" in done.err) == (2, True)
    monkeypatch.setenv("TFCTL_INVENTORY", str(hosts.inventory))
    done = hosts.with_inventory(None, "status", "near")
    assert (done.code, done.err) == (0, "")


@pytest.mark.extended
def test_a_single_word_is_a_role_of_the_job_that_is_meant_or_else_a_job(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("worker", "command: [sh, -c, echo by name]\nroles: {ps: 1}\n"), "--wait")
    assert hosts("logs", "worker").out == "ps/0 │ by name\n"
    hosts.ok("start", hosts.file("going", 'command: [sh, -c, "echo by role; exec sleep 600"]\nroles: {worker: 1}\n'))
    wait_until(lambda: "by role" in hosts.ok("logs", "going"))
    done = hosts("logs", "worker")
    assert (done.out, done.err) == ("worker/0 │ by role\n", "job: going\n")
    assert hosts("logs", "worker", "ps", 0).out == "ps/0 │ by name\n"
    assert hosts("logs", "-j", "worker").out == "ps/0 │ by name\n"
    assert hosts("restart", "worker").err == "job: going\ngoing: worker/0 runs again on node1\n"
