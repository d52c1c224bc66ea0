"""tfctl start: all of a job on three hosts, or nothing of it."""

from __future__ import annotations

import signal

import pytest
from hosts import STAY, Hosts
from node_tree import wait_until

THREE = STAY + "roles: {worker: 3}\n"


def test_a_job_that_succeeds(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'echo hello {role} {index}']\nroles: {ps: 1, worker: 3}\n"
    done = hosts("start", hosts.file("good", text.replace("ps: 1", "ps: {replicas: 1, command: sleep 600}")), "--wait")
    assert (done.code, done.out) == (0, "good\n"), done.err
    assert "good: attempt 1, 4 tasks run on 3 hosts" in done.err
    assert "stopped ps/0, which had nothing left to do" in done.err
    assert "good succeeded after" in done.err
    workers = dict.fromkeys(["worker/0", "worker/1", "worker/2"], "succeeded")
    assert hosts.states("good") == {"ps/0": "stopped", **workers}
    assert hosts.alive() == []


def test_a_job_that_fails(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {index} = 1 && exit 7; exec sleep 600']\nroles: {worker: 3}\n"
    done = hosts("start", hosts.file("bad", text), "--wait")
    assert (done.code, done.out) == (100, "bad\n")
    assert "bad failed after" in done.err
    assert "worker/1 on node2 failed with exit code 7" in done.err
    assert hosts.states("bad") == {"worker/0": "stopped", "worker/1": "failed", "worker/2": "stopped"}
    assert hosts("wait", "bad").code == 100
    assert hosts("status", "bad").code == 0


def test_a_job_that_is_stopped_meanwhile(hosts: Hosts) -> None:
    with hosts.begin("start", hosts.file("halted", THREE), "--wait") as client:
        client.until(err="3 tasks run")
        assert hosts("stop", "halted").code == 0
        done = client.done()
    assert (done.code, done.out) == (103, "halted\n")
    assert "halted stopped after" in done.err
    assert hosts("stop", "halted").code == 0


def test_a_job_that_takes_longer_than_one_waits(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("long", THREE), "--wait", "--timeout", "1s")
    assert done.code == 101
    assert "long is running" in done.err
    assert hosts("wait", "long", "--timeout", "1").code == 101
    assert len(hosts.alive()) == 3


def test_a_job_that_runs_is_busy_and_its_next_attempt_counts_on(hosts: Hosts) -> None:
    file = hosts.file("twice", THREE)
    hosts.ok("start", file)
    again = hosts("start", file)
    assert (again.code, again.out) == (5, "")
    assert "node1: job twice, task worker/0 runs on" in again.err
    assert "→ stop it first: tfctl stop twice" in again.err
    assert len(hosts.alive()) == 3
    hosts.ok("stop", "twice")
    hosts.ok("start", file)
    assert hosts.status("twice")["attempt"] == 2


def test_what_one_host_refuses_runs_on_none(hosts: Hosts) -> None:
    (hosts.trees["node3"] / "usr/bin/date").unlink()
    done = hosts("start", hosts.file("lacks", "command: date\nroles: {worker: 3}\n"))
    assert (done.code, done.out) == (8, "")
    assert "node3: worker/2: program date is not on the PATH" in done.err
    assert hosts.left() == []
    assert hosts("status", "lacks").code == 7


def test_a_host_that_lets_nobody_in_keeps_the_others_from_starting(hosts: Hosts) -> None:
    hosts.refuse("node2", "echo 'sudo: a password is required' >&2; exit 1")
    done = hosts("start", hosts.file("locked", THREE))
    assert done.code == 8
    assert "node2: sudo does not let this user run" in done.err
    assert hosts.left() == []


def test_the_dry_run_asks_and_changes_nothing(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("dry", THREE), "--dry-run")
    assert done.code == 0
    assert done.out.splitlines()[0] == "dry: attempt 1, custom, 3 tasks on 3 hosts"
    assert "worker/1 at 10.9.0.2:23400, stack none: sh -c 'echo begun; exec sleep 600'" in done.out
    assert all(tree.files() == [] for tree in hosts.trees.values())


def test_of_two_starts_at_once_one_wins(hosts: Hosts) -> None:
    file = hosts.file("race", THREE)
    with hosts.begin("start", file) as one, hosts.begin("start", file) as other:
        ends = [one.done(), other.done()]
    assert sorted(end.code for end in ends) == [0, 5], ends
    assert sorted(end.out for end in ends) == ["", "race\n"]
    assert len(hosts.alive()) == 3


def test_a_connection_that_breaks_while_units_start_undoes_all(hosts: Hosts) -> None:
    with hosts.held("node2"), hosts.begin("start", hosts.file("cut", THREE)) as client:
        wait_until(lambda: _starts(hosts, "node2"))
        hosts.drop("node2")
        done = client.done()
    assert (done.code, done.out) == (6, "")
    assert "node2: the connection broke" in done.err
    assert "nothing of the job runs" in done.err
    hosts.untouched()


def test_a_connection_that_breaks_while_a_host_prepares_releases_the_others(hosts: Hosts) -> None:
    with hosts.locked("node2") as release, hosts.begin("start", hosts.file("cut", THREE)) as client:
        wait_until(lambda: bool(hosts.reserved("node1") and hosts.reserved("node3")))
        hosts.drop("node2")
        hosts.untouched(but="node2")
        release()
        done = client.done()
    assert (done.code, done.out) == (4, "")
    assert "node2: the connection broke" in done.err
    hosts.untouched()


def test_a_connection_that_breaks_at_the_last_word_stops_the_rest(hosts: Hosts) -> None:
    """One host has not heard that it may keep its units: it undoes them, and the job cannot go on without."""
    patch = """
from tfctl.jobs import talks
keep = talks.Talks.keep
def cut(self):
    self._channels["node2"]._channel._raw.get_transport().close()
    return keep(self)
talks.Talks.keep = cut
"""
    with hosts.begin("start", hosts.file("late", THREE), patch=patch) as client:
        done = client.done()
    assert (done.code, done.out) == (6, "")
    assert "node2: the connection broke" in done.err
    hosts.untouched()


def test_a_connection_that_breaks_between_the_last_words_stops_the_rest(hosts: Hosts) -> None:
    """node1 keeps its units by then; node2 never hears that it may, and undoes its own."""
    patch = """
from tfctl.jobs import talks
send = talks.NodeChannel.send
def cut(self, kind, value):
    send(self, kind, value)
    if kind == "keep" and self.host == "node1":
        others["node2"]._channel._raw.get_transport().close()
talks.NodeChannel.send = cut
keep = talks.Talks.keep
def kept(self):
    others.update(self._channels)
    return keep(self)
talks.Talks.keep = kept
others = {}
"""
    with hosts.begin("start", hosts.file("torn", THREE), patch=patch) as client:
        done = client.done()
    assert (done.code, done.out) == (6, "")
    assert "node2: " in done.err
    assert "the job was stopped on the other hosts" in done.err
    wait_until(lambda: hosts.alive() == [])
    assert hosts.status("torn")["state"] == "stopped"


def test_an_output_that_hosts_do_not_share_is_refused_where_several_tasks_write(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("apart", STAY + "roles: {ps: 2, worker: 2}\n"))
    assert (done.code, done.out) == (8, "")
    assert "is not the same directory as on node1" in done.err
    assert "mount one shared directory there on all hosts" in done.err
    hosts.untouched()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_units_start_undoes(number: signal.Signals, hosts: Hosts) -> None:
    with hosts.held("node3"), hosts.begin("start", hosts.file("broken-off", THREE)) as client:
        wait_until(lambda: _starts(hosts, "node3"))
        client.process.send_signal(number)
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert "interrupted" in done.err
    assert hosts.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_between_two_last_words_tears_nothing(number: signal.Signals, hosts: Hosts) -> None:
    patch = f"""
from tfctl.jobs import talks
send = talks.NodeChannel.send
def interrupted(self, kind, value):
    send(self, kind, value)
    if kind == "keep" and self.host == "node1":
        os.kill(os.getpid(), {int(number)})
talks.NodeChannel.send = interrupted
"""
    with hosts.begin("start", hosts.file("whole", THREE), patch=patch) as client:
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert "whole runs: tfctl stop whole ends it" in done.err
    assert set(hosts.states("whole").values()) == {"running"}


def test_ctrl_c_while_hosts_prepare_undoes(hosts: Hosts) -> None:
    with hosts.locked("node3") as release, hosts.begin("start", hosts.file("broken-off", THREE)) as client:
        wait_until(lambda: bool(hosts.reserved("node1") and hosts.reserved("node2")))
        client.process.send_signal(signal.SIGINT)
        hosts.untouched(but="node3")
        release()
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert hosts.left() == []


def test_a_client_that_is_killed_leaves_nothing(hosts: Hosts) -> None:
    with hosts.held("node1"), hosts.begin("start", hosts.file("killed", THREE)) as client:
        wait_until(lambda: _starts(hosts, "node1"))
        client.process.kill()
        client.process.wait(20)
    hosts.untouched()


def _starts(hosts: Hosts, name: str) -> bool:
    """Its systemd has been told to start units."""
    return any(call.startswith("start ") for call in hosts.trees[name].calls())
