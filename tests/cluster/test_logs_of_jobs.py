"""`tfctl logs` of a job that has ended: which lines it prints, in which order and form."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.cluster.hosts import Hosts

TALK = r"""
    if [ $1 = ps ]; then echo serving; printf '\033[2Jred\a\n'; printf 'caf\351\n'; exit; fi
    for n in 1 2 3; do echo $1$2 step $n; sleep 0.02; done
    printf ' 1/9 [>..]\r 9/9 [===]\r\n'
    echo größer
"""


@pytest.fixture(scope="module")
def told(module_hosts: Hosts) -> Hosts:
    """Hosts on which a job named talk has ended."""
    text = "command: [sh, talk, '{role}', '{index}']\nroles: {ps: 1, worker: 3}\n"
    assert module_hosts("start", module_hosts.file("talk", text, talk=TALK), "--wait").code == 0
    return module_hosts


def test_logs_accepts_both_forms_of_a_task_name(told: Hosts) -> None:
    lines = ["worker1 step 1", "worker1 step 2", "worker1 step 3", " 9/9 [===]", "größer"]
    for words in (["worker", "1", "--job", "talk"], ["worker/1"], ["talk", "worker", "1"], ["talk", "worker/1"]):
        assert told.ok("logs", *words) == "".join(f"worker/1 │ {line}\n" for line in lines)


def test_logs_replaces_control_characters(told: Hosts) -> None:
    assert told.ok("logs", "ps", "-j", "talk") == "ps/0     │ serving\nps/0     │ ?[2Jred?\nps/0     │ caf�\n"


def test_logs_of_all_tasks_are_sorted_by_time(told: Hosts) -> None:
    found = told("logs", "-o", "json")
    assert found.err == "job: talk\n"
    assert len(found.objects) == 18
    assert [line["time"] for line in found.objects] == sorted(line["time"] for line in found.objects)
    first = next(line for line in found.objects if line["role"] == "worker" and line["index"] == 2)
    del first["time"]
    assert first == {"role": "worker", "index": 2, "host": "node3", "stream": "stdout", "line": "worker2 step 1"}


def test_logs_with_tail_prints_the_last_lines_of_all_tasks_together(told: Hosts) -> None:
    every = told.ok("logs", "-j", "talk").splitlines()
    assert told.ok("logs", "-j", "talk", "--tail", "4").splitlines() == every[-4:]
    assert told.ok("logs", "-j", "talk", "--tail", "0") == ""


def test_logs_with_grep_prints_matching_lines(told: Hosts) -> None:
    found = told.ok("logs", "worker", "-j", "talk", "--grep", "step [23]$", "--tail", "2", "-o", "json")
    # The last two lines of all workers together; both may be of one worker.
    assert len(found.splitlines()) == 2
    assert "step 3" in found.splitlines()[-1]
    assert told.ok("logs", "worker", "2", "-j", "talk", "--grep", "step 2") == "worker/2 │ worker2 step 2\n"


def test_logs_with_since_and_until_print_that_period(told: Hosts) -> None:
    lines = told("logs", "worker", "0", "-j", "talk", "-o", "json").objects
    since = lines[2]["time"]
    until = (datetime.fromisoformat(since) - timedelta(microseconds=1)).isoformat()
    # On a busy machine, several lines have the same millisecond.
    late = [line for line in lines if line["time"] >= since]
    early = [line for line in lines if line["time"] < since]
    assert told("logs", "worker/0", "-j", "talk", "-o", "json", "--since", since).objects == late
    assert told("logs", "worker/0", "-j", "talk", "-o", "json", "--until", until).objects == early
    assert len(told("logs", "worker/0", "-j", "talk", "-o", "json", "--since", "1h30m").objects) == 5


def test_logs_with_timestamps_prints_the_time_of_each_line(told: Hosts) -> None:
    [first, *_] = told("logs", "worker/0", "-j", "talk", "-o", "json").objects
    shown = told.ok("logs", "worker/0", "-j", "talk", "--timestamps").splitlines()
    assert shown[0] == f"{first['time']} worker/0 │ worker0 step 1"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["worker", "9"], 7, "talk has no worker 9\n  → it has ps 0, worker 0 to 2"),
        (["talk", "chief"], 7, "talk has no chief\n  → it has ps 0, worker 0 to 2"),
        (["chief"], 7, "no host has a job 'chief', and talk has no role chief\n  → it has ps, worker"),
        (["--job", "never"], 7, "no host has a job 'never'"),
        (["worker/x"], 2, "'worker/x' is not a task"),
        (["worker/1", "1"], 2, "'worker/1 1' is not a task"),
        (["--grep", "(["], 2, "--grep: '([' is not a regular expression"),
        (["--since", "yesterday"], 2, "--since: 'yesterday' is neither a duration such as 10m nor a time"),
        (["--tail", "-1"], 2, "--tail"),
    ],
)
def test_logs_rejects_unknown_tasks_and_invalid_options(words: list[str], code: int, said: str, told: Hosts) -> None:
    done = told("logs", *words)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_logs_prints_the_lines_of_the_other_hosts_when_one_does_not_answer(told: Hosts) -> None:
    told.refuse("node2", "exit 127")
    try:
        done = told("logs", "-j", "talk", "-o", "json")
        assert {line["host"] for line in done.objects} == {"node1", "node3"}
        assert "node2: /usr/local/sbin/tfctl-node cannot be run" in done.err
        assert done.code == 8
    finally:
        told.heal("node2")
