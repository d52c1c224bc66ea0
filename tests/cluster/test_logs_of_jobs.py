"""`tfctl logs` of a job that has ended: which lines it prints, in which order and form."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from node_tree import wait_until

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
        (["--grep", "a{99999999999}"], 2, "is not a regular expression: the repetition number is too large"),
        (["--grep", "(" * 3000 + ")" * 3000], 2, "is not a regular expression: its parentheses are nested too deeply"),
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


#: What a task logs at once, by the journal's own protocol.
FORGED = (
    "step 10\nworker/1 │ RuntimeError: loss is NaN\n\u2028~~ node2\rtfctl: node2: job forging failed\x1b[2K\u202e"
).encode()


@pytest.fixture
def logging(hosts: Hosts) -> Callable[..., str]:
    """Return a function that starts a job whose worker/0 on node1 logs these messages, and returns the job's name."""

    def start(name: str, *messages: bytes, end: str = "exit 3") -> str:
        file = hosts.folder / f"{name}.end"
        text = f'command: [sh, -c, "echo begun; until test -e {file}; do sleep 0.05; done; echo ended; {end}"]\n'
        hosts.ok("start", hosts.file(name, text + "roles: {worker: 2}\n"))
        wait_until(lambda: hosts.ok("logs", name).count("begun") == 2)
        for message in messages:
            hosts.trees["node1"].log(f"tfctl-{name}-worker-0.service", message)
        file.touch()
        return name

    return start


def test_a_task_cannot_forge_lines_of_another_task_or_of_tfctl(
    hosts: Hosts, logging: Callable[..., str], tmp_path: Path
) -> None:
    name = logging("forging", FORGED)
    waited = hosts("wait", name)
    assert waited.code == 100
    lines = ["step 10", "worker/1 │ RuntimeError: loss is NaN", "tfctl: node2: job forging failed?[2K?"]
    assert hosts.ok("logs", name, "worker/0").splitlines() == [
        f"worker/0 │ {line}" for line in ("begun", *lines, "ended")
    ]
    assert hosts.ok("logs", name, "--grep", "NaN") == "".join(f"worker/0 │ {line}\n" for line in lines)
    assert [one["line"] for one in hosts("logs", name, "worker/0", "-o", "json").objects] == [
        "begun", FORGED.decode(), "ended",
    ]  # fmt: skip
    if " of worker/0 " in waited.err:  # it failed first
        last = "".join(f"  {line}\n" for line in ("begun", *lines, "ended"))
        assert f"the last 5 lines of worker/0 on node1:\n{last}" in waited.err
    assert hosts("pull", name, tmp_path).code == 0
    found = (tmp_path / "attempt-1/worker-0.log").read_text()
    assert found.splitlines() == ["begun", *lines, "ended"]


LONG = b"\xff" * (5 * 2**20)


def test_a_long_entry_is_cut_and_does_not_end_or_stall_what_reads_logs(
    hosts: Hosts, logging: Callable[..., str], tmp_path: Path
) -> None:
    """As JSON of journalctl, it has more than the longest line that tfctl accepts."""
    name = logging("long", b"before", LONG, b"after", end="sleep 1")
    found = hosts("logs", "-f", name, "worker/0")
    lines = [line.removeprefix("worker/0 │ ") for line in found.out.splitlines()]
    assert (found.code, [*lines[:2], *lines[3:]]) == (0, ["begun", "before", "after", "ended"]), found.err[:2000]
    assert lines[2] == "\ufffd" * 2**20 + " … (cut: this line has 5,242,880 bytes)"
    said = re.findall("^~~ node1: the line of worker/0 at .* was cut, because it has 5,242,880 bytes$", found.err, re.M)
    assert len(said) == 1
    assert "trying again" not in found.err
    *objects, _, _ = hosts("logs", name, "worker/0", "-o", "json").objects
    lost = {"cause": "cut", "since": objects[-2]["time"], "until": objects[-2]["time"], "lines": 1}
    assert (objects[-1]["stream"], objects[-1]["lost"]) == ("lost", lost)
    assert hosts.ok("logs", name, "worker/0", "--grep", "after|cut") == "worker/0 │ after\n"
    done = hosts("pull", name, tmp_path)
    assert (done.code, "attempt-1/worker-0.log has only the beginning of 1 long line\n" in done.err) == (0, True), done
    assert (tmp_path / "attempt-1/worker-0.log").read_text().splitlines() == lines


@pytest.mark.extended
def test_a_long_line_that_takes_too_long_to_search_is_left_out_with_a_word(
    hosts: Hosts, logging: Callable[..., str]
) -> None:
    """Whether it is logged at once or printed, so that journald splits it."""
    printed = "printf '%0200000d' 0; echo; echo 0c"
    name = logging("searched", b"0" * 2**19, b"0c", end=printed)
    assert hosts("wait", name).code == 0
    found = hosts("logs", name, "--grep", "0.*0.*0.*c")
    assert (found.code, found.out) == (0, ""), found
    left_out = re.findall("^~~ (.*): a line of (.*) at .* took too long to search and was left out$", found.err, re.M)
    assert sorted(left_out) == [("node1", "worker/0")] * 2 + [("node2", "worker/1")]
    assert hosts.ok("logs", name, "--grep", "0.*c$").count("│ 0c\n") == 3
