"""Following a job prints each line once, and its end, even if connections break."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from node_tree import wait_until

from tests.cluster.hosts import STAY, Client, Hosts
from tfctl.jobs import logs, show
from tfctl.jobs.answers import Answers
from tfctl.jobs.journal import Line, Query
from tfctl.model.host import TRANSPORTS
from tfctl.remote import inventory
from tfctl.remote.fleet import Fleet

COUNT = """
    n=0
    while [ $n -lt 60 ]; do n=$((n + 1)); echo $1 $n; sleep 0.05; done
"""
COUNTING = "command: [sh, count, '{index}']\nroles: {worker: 3}\n"


def lines(out: str, task: str) -> list[str]:
    return [line.partition(" │ ")[2] for line in out.splitlines() if line.startswith(f"{task} ")]


def counted(index: int) -> list[str]:
    return [f"{index} {n}" for n in range(1, 61)]


def test_start_with_follow_prints_every_line_once_when_connections_break(hosts: Hosts) -> None:
    """The logs are the data on stdout, so the job's name is printed on stderr."""
    with hosts.begin("start", hosts.file("count", COUNTING, count=COUNT), "--follow") as client:
        client.until(out="worker/1 │ 1 5\n")
        hosts.drop("node2")
        client.until(err="node2 is back")
        hosts.drop("node2")
        hosts.drop("node3")
        done = client.done()
    assert done.code == 0, done.err
    assert [lines(done.out, f"worker/{index}") for index in range(3)] == [counted(index) for index in range(3)]
    assert "count\n" in done.err
    assert "~~ node2: the connection broke" in done.err
    assert "count succeeded" in done.err
    assert "tfctl:" not in done.err


def test_logs_with_follow_end_when_the_job_ends(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("count", COUNTING, count=COUNT))
    with hosts.begin("logs", "-f", "worker") as client:
        client.until(out="worker/0 │ 0 5\n", err="job: count")
        hosts.drop("node1")
        done = client.done()
    assert done.code == 0, done.err
    assert [lines(done.out, f"worker/{index}") for index in range(3)] == [counted(index) for index in range(3)]


def test_lines_are_collected_on_the_hosts_when_many_are_followed(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not the first ones."""
    monkeypatch.setattr(logs, "_CROWD", 2)
    monkeypatch.setattr(logs, "_COLLECT_S", 3.0)
    hosts.ok("start", hosts.file("collected", COUNTING, count=COUNT.replace("-lt 60", "-lt 600")))
    wait_until(lambda: all(hosts.trees[name].entries()[1:] for name in hosts.names))
    with Fleet(inventory.load(hosts.inventory).hosts) as fleet:
        state, _ = show.one(fleet, "collected")
        answers = logs.answers_of(fleet, state, Query())
        answers.begin()
        began, over = time.monotonic(), threading.Event()
        batches = logs.follow(fleet, state, Query(), over, print, answers)
        assert {line.host for line in next(batches)} == {*hosts.names}
        assert time.monotonic() - began < 3.0
        numbers: dict[str, list[int]] = {}
        while any(len(numbers.get(name, [])) < 20 for name in hosts.names):
            for item in next(batches):
                assert isinstance(item, Line)
                numbers.setdefault(item.host, []).append(int(item.text.split()[1]))
        assert time.monotonic() - began > 3.0
        assert all(found == list(range(found[0], found[0] + len(found))) for found in numbers.values())
        over.set()
        assert [*batches]
        answers.end()
    hosts.ok("stop", "collected")


def threads(client: Client) -> int:
    status = Path(f"/proc/{client.process.pid}/status").read_text()
    return int(status.partition("Threads:")[2].split()[0])


@pytest.mark.extended
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_following_has_one_channel_and_at_most_two_threads_per_host(
    hosts: Hosts, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFCTL_SSH", transport)
    hosts.ok("start", hosts.file("followed", STAY + "roles: {worker: 3}\n"))
    with hosts.begin("logs", "-f", "-j", "followed") as client:
        client.until(out="worker/2 │ begun\n")
        wait_until(lambda: all(hosts.shown(name) for name in hosts.names), lambda: client.err)
        wait_until(lambda: [hosts.sessions(name) for name in hosts.names] == [1, 1, 1], lambda: client.err)
        # Three threads are not those of a host: one prints, one looks at the states, one waits for the end. Those that
        # have connected end soon.
        wait_until(lambda: threads(client) <= 2 * 3 + 3)
        hosts.ok("stop", "followed")
        assert client.done().code == 0


def test_hosts_whose_lines_are_not_followed_have_one_channel_too(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("partly", STAY + "roles: {worker: 3}\n"))
    with hosts.begin("logs", "-f", "-j", "partly", "worker", "1") as client:
        client.until(out="worker/1 │ begun\n")
        wait_until(lambda: [hosts.sessions(name) for name in hosts.names] == [1, 1, 1], lambda: client.err)
        hosts.ok("stop", "partly")
        done = client.done()
    assert (done.code, done.out) == (0, "worker/1 │ begun\n")


@pytest.mark.extended
def test_a_host_with_an_older_node_part_is_followed_over_two_channels(hosts: Hosts) -> None:
    hosts.age("node2")
    until = f"until [ -e {hosts.folder}/mixed.{{index}} ]; do sleep 0.1; done"
    failing = f"command: [sh, -c, 'echo begun; {until}; exit 3']\n"
    hosts.ok("start", hosts.file("mixed", failing + "roles: {worker: 3}\n"))
    with hosts.begin("logs", "-f", "-j", "mixed") as client:
        client.until(out="worker/1 │ begun\n")
        wait_until(lambda: [hosts.sessions(name) for name in hosts.names] == [1, 2, 1], lambda: client.err)
        hosts.drop("node2")
        client.until(err="node2 is back")
        (hosts.folder / "mixed.1").touch()
        client.until(err="~~ worker/1 ")
        hosts.ok("stop", "mixed")
        assert client.done().code == 0


def test_a_host_whose_lines_cannot_be_followed_has_one_channel_for_its_states(hosts: Hosts) -> None:
    """Also if that is known before anybody listens to the other hosts."""
    hosts.ok("start", hosts.file("early", STAY + "roles: {worker: 3}\n"))
    with Fleet(inventory.load(hosts.inventory).hosts) as fleet:
        answers = Answers(fleet, "early", 1, hosts.names)
        answers.listen(fleet.hosts[1])
        answers.begin()
        assert [host for host, _ in answers.incoming.take(20.0, 0.0)] == ["node2"]
        assert answers.incoming.take(2.0, 0.0) == []
        answers.end()


def test_a_host_that_cannot_read_its_journal_reports_the_states_all_the_same(hosts: Hosts) -> None:
    """It is the only host of the job: an error that all hosts have would end the command."""
    until = f"until [ -e {hosts.folder}/sole.flag ]; do sleep 0.1; done"
    hosts.ok("start", hosts.file("sole", f"command: [sh, -c, 'echo begun; {until}; exit 3']\nroles: {{worker: 1}}\n"))
    with hosts.begin("logs", "-f", "-j", "sole") as client:
        client.until(out="worker/0 │ begun\n")
        hosts.break_logs("node1")
        hosts.drop("node1")
        client.until(err="; trying again")
        (hosts.folder / "sole.flag").touch()
        client.until(err="~~ worker/0 on node1 failed with exit code 3")
        client.until(err="its last lines are missing")
        client.done()


def test_logs_with_follow_exit_with_the_code_of_a_host_that_refuses_its_lines(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("refused", STAY + "roles: {worker: 3}\n"))
    hosts.refuse("node2", "exit 127")
    with hosts.begin("logs", "-f", "-j", "refused") as client:
        client.until(out="worker/2 │ begun\n", err="tfctl: node2: /usr/local/sbin/tfctl-node cannot be run\n  → ")
        hosts.heal("node2")
        hosts.ok("stop", "refused")
        done = client.done()
    assert (done.code, lines(done.out, "worker/1")) == (8, []), done.err
    assert done.err.count("cannot be run") == 1


def test_logs_with_follow_fail_when_no_host_can_match_the_pattern(hosts: Hosts) -> None:
    command = f"command: [sh, -c, 'echo {'a' * 60}b; exec sleep 600']\nroles: {{worker: 1}}\n"
    hosts.ok("start", hosts.file("slow", command))
    wait_until(lambda: "ab" in hosts.ok("logs", "-j", "slow"))
    with hosts.begin("logs", "-f", "-j", "slow", "--grep", "^(a+)+$") as client:
        done = client.done()
    assert (done.code, done.out) == (2, ""), done.err
    assert "→ simplify --grep" in done.err


@pytest.mark.extended
def test_logs_with_follow_continue_when_the_node_part_is_missing_for_a_moment(hosts: Hosts) -> None:
    """`provision` replaces it."""
    hosts.ok("start", hosts.file("replaced", STAY + "roles: {worker: 3}\n"))
    asked = hosts.folder / "replaced.asked"
    with hosts.begin("logs", "-f", "-j", "replaced") as client:
        client.until(out="worker/1 │ begun\n")
        hosts.refuse("node2", f"touch {asked}; exit 127")
        hosts.drop("node2")
        wait_until(asked.exists)
        hosts.heal("node2")
        client.until(err="node2 is back")
        hosts.ok("stop", "replaced")
        done = client.done()
    assert done.code == 0, done.err
    assert "tfctl:" not in done.err


@pytest.mark.extended
def test_logs_with_follow_and_tail_print_the_last_lines_of_all_hosts_together(hosts: Hosts) -> None:
    command = "command: [sh, -c, 'for n in 1 2 3; do echo {index} $n; done; exec sleep 600']\n"
    hosts.ok("start", hosts.file("tailed", command + "roles: {worker: 3}\n"))
    wait_until(lambda: len(hosts.ok("logs", "-j", "tailed").splitlines()) == 9)
    with hosts.begin("logs", "-f", "--tail", "2", "-j", "tailed") as client:
        client.until(out=" │ ")
        hosts.ok("stop", "tailed")
        done = client.done()
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 2, done.out
    assert "tfctl:" not in done.err


@pytest.mark.extended
@pytest.mark.parametrize("grep", [[], ["--grep", "old|new"]])
def test_logs_with_follow_and_tail_leave_out_the_old_lines_of_a_host_that_answers_later(
    hosts: Hosts, grep: list[str]
) -> None:
    flag = hosts.folder / f"new.{len(grep)}"
    until = f"until [ -e {flag} ]; do sleep 0.05; done"
    numbers = " ".join(str(number) for number in range(1, 31))
    script = f"for n in {numbers}; do echo old $n; done; {until}; echo new; exec sleep 600"
    hosts.ok("start", hosts.file("later", f"command: [sh, -c, '{script}']\nroles: {{worker: 2}}\n"))
    wait_until(lambda: len(hosts.ok("logs", "-j", "later").splitlines()) == 60)
    hosts.refuse("node2", "exit 1")
    with hosts.begin("logs", "-f", "--tail", "2", "-j", "later", *grep) as client:
        client.until(out="worker/0 │ old 30\n", err="trying again")
        hosts.heal("node2")
        client.until(err="node2 is back")
        flag.touch()
        client.until(out="worker/1 │ new\n")
        hosts.ok("stop", "later")
        done = client.done()
    assert done.code == 0, done.err
    assert [lines(done.out, f"worker/{index}") for index in range(2)] == [["old 29", "old 30", "new"], ["new"]]


def test_logs_with_follow_and_tail_print_lines_once_when_journald_does_not_confirm_them(hosts: Hosts) -> None:
    """The task prints while the last lines are read."""
    flag, broken = hosts.folder / "unsure.flag", hosts.trees["node1"] / "journald/broken"
    broken.parent.mkdir()
    broken.touch()
    script = f"n=0; until [ -e {flag} ]; do n=$((n + 1)); echo $n; sleep 0.02; done"
    hosts.ok("start", hosts.file("unsure", f"command: [sh, -c, '{script}']\nroles: {{worker: 1}}\n"))
    with hosts.begin("logs", "-f", "--tail", "10000", "-j", "unsure") as client:
        client.until(out="worker/0 │ 1\n")
        before = len(lines(client.out, "worker/0"))
        wait_until(lambda: len(lines(client.out, "worker/0")) > before + 10, lambda: client.err)
        broken.unlink()
        flag.touch()
        done = client.done()
    assert done.code == 0, done.err
    numbers = lines(done.out, "worker/0")
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


@pytest.mark.extended
def test_wait_continues_when_connections_break(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("awaited", STAY + "roles: {worker: 3}\n"))
    for name in hosts.names:
        hosts.forget(name)
    with hosts.begin("wait", "awaited") as client:
        for _ in range(2):
            for _ in range(3):  # the first query is for the attempt; following then reads the states repeatedly
                wait_until(lambda: all(hosts.shown(name) for name in hosts.names), lambda: client.err)
                for name in hosts.names:
                    hosts.forget(name)
            for name in hosts.names:
                hosts.drop(name)
        wait_until(lambda: all(hosts.shown(name) for name in hosts.names), lambda: client.err)
        assert hosts("stop", "awaited").code == 0
        done = client.done()
    assert done.code == 103, done.err


def test_ctrl_c_after_the_end_of_a_job_says_how_it_ended(hosts: Hosts) -> None:
    """The client is about to read the last lines of the task that has failed."""
    text = "command: [sh, -c, 'exit 3']\nroles: {worker: 1}\npolicy: {max_restarts: 0}\n"
    with (
        hosts.delayed("node1", "logs") as (reads, _),
        hosts.begin("start", hosts.file("broken", text), "--wait") as client,
    ):
        wait_until(reads, lambda: client.err)
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert done.code == 130
    assert "broken failed after " in done.err
    assert done.err.endswith("tfctl: interrupted\n")
    assert "keeps running" not in done.err


def test_start_with_wait_says_that_the_job_keeps_running_on_ctrl_c(hosts: Hosts) -> None:
    with hosts.begin("start", hosts.file("detached", STAY + "roles: {worker: 3}\n"), "--wait") as client:
        client.until(err="3 tasks run")
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert done.code == 130
    assert "detached keeps running" in done.err
    assert "to stop it, run `tfctl stop detached`" in done.err
    assert set(hosts.states("detached").values()) == {"running"}


@pytest.mark.parametrize("words", [("status", "--watch"), ("logs", "-f")], ids=" ".join)
def test_ctrl_c_adds_no_object_to_those_that_were_printed(hosts: Hosts, words: tuple[str, str]) -> None:
    hosts.ok("start", hosts.file("watched", STAY + "roles: {worker: 1}\n"))
    with hosts.begin(*words, "-o", "json") as client:
        client.until(out='"host": "node1"')
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert (done.code, [each for each in done.objects if "error" in each]) == (130, [])
