"""`tfctl restart`: the next attempt on all hosts or on none, from their restart files; and one task in place."""

from __future__ import annotations

import json
import re
import signal

import pytest
from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts
from tfctl.cli.which import split_words
from tfctl.errors import UsageError
from tfctl.jobs import show
from tfctl.jobs.wait import clean
from tfctl.remote import inventory
from tfctl.remote.fleet import Fleet

THREE = STAY + "roles: {worker: 3}\n"


def test_restart_starts_the_next_attempt_without_the_job_file(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'echo $SECRET in $TFCTL_ATTEMPT from $(cat words); exec sleep 600']\n"
    file = hosts.file("anew", text + "env: {SECRET: s3cret}\nroles: {worker: 3}\n", words="the code\n")
    hosts.ok("start", file)
    before = hosts.status("anew")
    file.unlink()
    done = hosts("restart")
    assert (done.code, done.out) == (0, "anew\n"), done.err
    assert done.err == "job: anew\nanew: attempt 2, 3 tasks run on 3 hosts\n"
    after = hosts.status("anew")
    assert (after["attempt"], after["state"]) == (2, "running")
    assert after["run"] != before["run"]
    for old, new in zip(before["tasks"], after["tasks"], strict=True):
        assert {**new, "started": ""} == {**old, "started": ""}
    wait_until(lambda: hosts.ok("logs").count("s3cret in 2 from #!/bin/sh the code") == 3)
    assert hosts("wait", "anew", "--timeout", "1").code == 101
    records = [(tree / "var/lib/tfctl/jobs/anew/2/job.json").read_text() for tree in hosts.trees.values()]
    assert not [record for record in records if "s3cret" in record]


def test_restart_remembers_the_inventory_that_it_has_used(hosts: Hosts) -> None:
    """The one of the start may be on another machine."""
    hosts.ok("start", hosts.file("anew", THREE))
    other = hosts.folder / "other.ini"
    other.write_text(hosts.inventory.read_text())
    assert hosts.with_inventory(other, "restart", "anew").code == 0
    done = hosts.with_inventory(None, "status", "anew")
    assert done.err == f"inventory: {other}, last used from {hosts.folder}\n"


@pytest.mark.extended
def test_restart_starts_a_failed_job_whose_tasks_were_cleaned_up(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {role}0 = ps0 && exec sleep 600; exit $((2 - TFCTL_ATTEMPT))']\n"
    assert hosts("start", hosts.file("second", text + "roles: {ps: 1, worker: 2}\n"), "--wait").code == 100
    assert hosts.states("second")["ps/0"] == "stopped"
    done = hosts("restart", "second", "--wait")
    assert (done.code, done.out) == (0, "second\n"), done.err
    assert hosts.status("second")["attempt"] == 2


@pytest.mark.extended
def test_late_cleanup_leaves_the_next_attempt_alone(hosts: Hosts) -> None:
    """A client that was suspended since the end of the job may clean up after a restart."""
    text = "command: [sh, -c, 'test $TFCTL_ATTEMPT = 1 || exec sleep 600']\npolicy: {clean: all}\nroles: {worker: 3}\n"
    hosts.ok("start", hosts.file("late", text))
    wait_until(lambda: hosts.status("late")["state"] == "succeeded")
    with Fleet(inventory.load(hosts.inventory).hosts) as fleet:
        ended = show.one(fleet, "late")[0]
        hosts.ok("restart", "late")
        assert clean(fleet, ended, lambda _: None).names == [("worker", 0), ("worker", 1), ("worker", 2)]
    assert set(hosts.states("late").values()) == {"running"}


def test_client_names_what_another_one_has_stopped_when_both_clean_up(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {role} = ps && exec sleep 600; sleep 1']\nroles: {ps: 1, worker: 2}\n"
    file = hosts.file("both", text)
    with hosts.delayed("node1", "stop") as (reached, go_on), hosts.begin("start", file, "--wait") as client:
        wait_until(reached)
        hosts.heal("node1")
        other = hosts("wait", "both")
        go_on()
        done = client.done()
    for each in (other, done):
        assert (each.code, "stopped ps/0, which had nothing left to do" in each.err) == (0, True), each.err


def test_client_names_what_another_one_has_stopped_while_an_evaluator_goes_on(hosts: Hosts) -> None:
    flag = hosts.folder / "evaluated"
    text = f"""\
        command: [sh, -c, "exec sleep 600"]
        roles:
          ps: {{replicas: 1, hosts: node1}}
          chief: {{replicas: 1, hosts: node2, command: [sh, -c, sleep 1]}}
          evaluator: {{replicas: 1, hosts: node3, command: [sh, -c, "until [ -e {flag} ]; do sleep 0.1; done"]}}
        policy: {{drain: 60s}}
        """
    file = hosts.file("drained", text)
    with hosts.delayed("node1", "stop") as (reached, go_on), hosts.begin("start", file, "--wait") as client:
        wait_until(reached)
        hosts.heal("node1")
        with hosts.begin("wait", "drained") as other:
            other.until(err="stopped ps/0, which had nothing left to do")
            go_on()
            flag.touch()
            ends = client.done(), other.done()
    for each in ends:
        assert (each.code, each.err.count("stopped ps/0, which had nothing left to do")) == (0, 1), each.err


def test_wait_knows_no_less_than_before_if_a_host_is_silent_when_it_is_asked_again(hosts: Hosts) -> None:
    flag = hosts.folder / "fails"
    code = f"test {{index}} = 0 || exec sleep 600; until [ -e {flag} ]; do sleep 0.1; done; exit 3"
    hosts.ok(
        "start", hosts.file("kept", f"command: [sh, -c, '{code}']\nroles: {{worker: 2}}\npolicy: {{clean: none}}\n")
    )
    with hosts.begin("wait", "-o", "json") as client:
        client.until(err="job: kept")
        hosts.lose("node2", "show")
        flag.touch()
        done = client.done()
    assert [task["state"] for task in json.loads(done.out)["tasks"]] == ["failed", "running"], done.err
    hosts.ok("stop", "kept")


@pytest.mark.extended
def test_late_cleanup_leaves_another_run_alone_that_has_the_same_attempt(hosts: Hosts) -> None:
    """Attempts are counted from 1 again after `prune`."""
    flag = hosts.folder / "stays"
    text = f"command: [sh, -c, 'test ! -e {flag} || exec sleep 600']\npolicy: {{clean: all}}\nroles: {{worker: 3}}\n"
    file = hosts.file("same", text)
    hosts.ok("start", file)
    wait_until(lambda: hosts.status("same")["state"] == "succeeded")
    with Fleet(inventory.load(hosts.inventory).hosts) as fleet:
        ended = show.one(fleet, "same")[0]
        hosts.ok("prune", "same", "--yes")
        flag.touch()
        hosts.ok("start", file)
        clean(fleet, ended, lambda _: None)
    flag.unlink()
    assert (hosts.status("same")["attempt"], set(hosts.states("same").values())) == (1, {"running"})


def test_restart_with_dry_run_changes_nothing(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("dry", THREE))
    before, files = hosts.status("dry"), {name: tree.files() for name, tree in hosts.trees.items()}
    lines = hosts.ok("restart", "dry", "--dry-run").splitlines()
    assert lines[:3] == [
        "dry: attempt 2, custom, 3 tasks on 3 hosts",
        "node1: output /srv/tfctl/dry",
        "  worker/0 at 10.9.0.1:23400, running now",
    ]
    assert hosts.ok("restart", "dry", "worker", "2", "--dry-run") == "dry: attempt 1, worker/2 on node3, running now\n"
    for words, attempt in ((), 2), (("worker", "2"), 1):
        done = hosts("restart", "dry", *words, "--dry-run", "-o", "json")
        assert (done.code, done.objects) == (0, [{"job": "dry", "attempt": attempt}])
    assert hosts.status("dry") == before
    assert {name: tree.files() for name, tree in hosts.trees.items()} == files


def test_restart_and_stop_print_objects(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("both", THREE))
    assert hosts("restart", "both", "-o", "json").objects == [{"job": "both", "attempt": 2}]
    stopped = hosts("stop", "both", "-o", "json").objects
    assert stopped == [{"job": "both", "stopped": ["worker/0", "worker/1", "worker/2"]}]


@pytest.mark.extended
def test_restart_uses_the_port_of_the_guard_that_it_stops(hosts: Hosts) -> None:
    """The head has one task, and no port to spare."""
    tight = hosts.told("node1", tfctl_ports="23400-23401")
    assert hosts.with_inventory(tight, "start", hosts.file("tight", THREE)).code == 0
    for words in (["--dry-run"], []):
        done = hosts.with_inventory(tight, "restart", "tight", *words)
        assert done.code == 0, done.err
    assert (hosts.status("tight")["attempt"], len(hosts.alive())) == (2, 3)


@pytest.mark.extended
def test_restart_stops_nothing_when_no_port_is_free_for_the_guard(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("tight", THREE))
    tight = hosts.told("node1", tfctl_ports="23400")
    for words in (["--dry-run"], []):
        done = hosts.with_inventory(tight, "restart", "tight", *words)
        assert (done.code, done.out) == (5, "")
        assert "node1: no port in 23400-23400 (tfctl_ports) is free for the guard of the job" in done.err
    assert (hosts.status("tight")["attempt"], len(hosts.alive())) == (1, 3)


def test_restart_stops_nothing_when_one_host_has_lost_its_restart_files(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("rebooted", THREE))
    (hosts.trees["node2"] / "run/tfctl/env/tfctl-rebooted-worker-1.env").unlink()
    done = hosts("restart", "rebooted")
    assert (done.code, done.out) == (7, "")
    assert "node2 no longer has the restart files of worker/1 of rebooted: a stop or a reboot deletes them" in done.err
    assert "→ start it from its job file" in done.err
    assert len(hosts.alive()) == 3
    hosts.refuse("node3", "exit 127")
    assert hosts("restart", "rebooted").code == 8
    assert len(hosts.alive()) == 3


def test_restart_starts_nothing_when_one_host_refuses(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("lacks", "command: sleep 600\nroles: {worker: 3}\n"))
    program = hosts.trees["node3"] / "usr/bin/sleep"
    program.rename(program.with_name("asleep"))
    done = hosts("restart", "lacks")
    assert (done.code, done.out) == (8, "")
    assert "lacks was stopped, but its next attempt could not be started" in done.err
    assert "node3: worker/2: program sleep is not on the PATH" in done.err
    assert hosts.alive() == []
    assert hosts.status("lacks")["state"] == "stopped"
    done = hosts("restart", "lacks")
    assert (done.code, "no longer has the restart files of worker/0 of lacks" in done.err) == (7, True)


@pytest.mark.extended
def test_restart_starts_nothing_when_hosts_no_longer_share_the_output(hosts: Hosts) -> None:
    """The hosts of this suite share no directory, so the test changes the record as if they had."""
    hosts.ok("start", hosts.file("apart", STAY + "roles: {worker: 3}\n"))
    for tree in hosts.trees.values():
        record = tree / "var/lib/tfctl/jobs/apart/1/job.json"
        record.write_text(record.read_text().replace('"shared":false', '"shared":true'))
    done = hosts("restart", "apart")
    assert (done.code, done.out) == (8, "")
    said = "node2, node3: /srv/tfctl/apart is not the same directory as on node1"
    assert said in done.err and "apart was stopped, but its next attempt could not be started" in done.err
    hosts.untouched()
    assert hosts.status("apart")["attempt"] == 1


@pytest.mark.extended
def test_restart_undoes_the_next_attempt_on_ctrl_c_while_units_start(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("broken-off", THREE))
    with hosts.held("node3"), hosts.begin("restart", "broken-off") as client:
        wait_until(lambda: sum(call.startswith("start ") for call in hosts.trees["node3"].calls()) == 2)
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert "broken-off was stopped and not started again\nno part of the job is running" in done.err
    wait_until(lambda: hosts.alive() == [])
    assert hosts.status("broken-off")["attempt"] == 1


@pytest.mark.extended
def test_restart_says_that_the_job_was_stopped_on_ctrl_c_while_hosts_undo_the_next_attempt(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("undone", THREE))
    with hosts.undoing("restart", "undone") as client:
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert "undone was stopped and not started again\neach host undoes its part on its own" in done.err
    assert "undone runs" not in done.err
    wait_until(lambda: hosts.alive() == [])
    wait_until(lambda: hosts.status("undone")["attempt"] == 1)  # its files are deleted after its tasks have ended


def test_restart_starts_nothing_when_a_host_loses_the_stop_request(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("half", THREE))
    hosts.lose("node3", "stop")
    done = hosts("restart", "half")
    assert (done.code, done.out) == (8, "")
    assert "half was stopped on the hosts that answer, and not started again" in done.err
    hosts.heal("node3")
    assert hosts.states("half") == {"worker/0": "stopped", "worker/1": "stopped", "worker/2": "running"}


@pytest.mark.extended
def test_restart_leaves_an_attempt_alone_that_another_user_started_meanwhile(hosts: Hosts) -> None:
    file = hosts.file("taken", STAY + "roles: {worker: 1}\n")
    hosts.ok("start", file)
    with hosts.delayed("node1", "stop") as (reached, release), hosts.begin("restart", "taken") as client:
        wait_until(reached)
        hosts.heal("node1")
        hosts.ok("stop", "taken")
        hosts.ok("start", file)
        release()
        done = client.done()
    assert (done.code, "taken has been started again in the meantime" in done.err) == (5, True), done
    assert (hosts.status("taken")["attempt"], hosts.states("taken")) == (2, {"worker/0": "running"})


def test_restart_of_one_task_restarts_it_in_place(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("one", THREE + "policy: {max_restarts: 1}\n"))
    before = hosts.status("one")
    done = hosts("restart", "one", "worker", 1)
    assert (done.code, done.out, done.err) == (0, "one\n", "one: worker/1 runs again on node2\n")
    after = hosts.status("one")
    before["tasks"][1]["restarts"] = 1
    assert after == before
    assert hosts("restart", "worker/1", "-j", "one").code == 0
    done = hosts("restart", "one", "worker")
    assert (done.code, "one has 3 tasks of role worker\n  → name one: it has worker 0 to 2" in done.err) == (7, True)
    done = hosts("restart", "one", "ps")
    assert (done.code, "one has no ps\n  → it has worker 0 to 2" in done.err) == (7, True)


@pytest.mark.extended
def test_restart_refuses_one_task_of_an_ended_job(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("over", THREE))
    hosts.ok("stop", "over")
    done = hosts("restart", "over", "worker/0")
    assert (done.code, "over was stopped\n  → start it from its job file" in done.err) == (7, True)
    text = "command: [sh, -c, 'exit {index}']\nroles: {worker: 2}\n"
    assert hosts("start", hosts.file("failed", text), "--wait").code == 100
    done = hosts("restart", "failed", "worker/1")
    assert (done.code, "failed has failed, so worker/1 cannot be restarted alone" in done.err) == (7, True)
    assert hosts.alive() == []


def test_restart_needs_the_name_of_a_job_when_none_runs(hosts: Hosts) -> None:
    done = hosts("restart")
    assert (done.code, "no job is running" in done.err) == (2, True)
    done = hosts("restart", "never")
    assert (done.code, "no host has a job 'never'" in done.err) == (7, True)
    done = hosts("restart", "-h")
    assert re.search(r"Examples: tfctl restart", done.out)


@pytest.mark.parametrize(
    ("words", "named", "meant"),
    [
        ([], False, (None, None)),
        (["a"], False, ("a", None)),
        (["a", "worker", "3"], False, ("a", ("worker", 3))),
        (["a", "worker/3"], False, ("a", ("worker", 3))),
        (["a", "chief"], False, ("a", ("chief", None))),
        (["worker", "3"], True, (None, ("worker", 3))),
        (["worker", "3"], False, (None, ("worker", 3))),
        (["worker/3"], False, (None, ("worker", 3))),
        (["./job.yaml", "worker"], False, ("./job.yaml", ("worker", None))),
        (["worker"], True, (None, ("worker", None))),
    ],
)
def test_words_are_parsed_as_job_and_task(words: list[str], named: bool, meant: object) -> None:
    assert split_words(words, named) == meant


@pytest.mark.parametrize("words", [["a", "worker", "x"], ["a", "worker", "3", "4"], ["a", "worker/3/4"], ["worker/x"]])
def test_words_that_are_not_a_task_are_rejected(words: list[str]) -> None:
    with pytest.raises(UsageError, match="is not a task"):
        split_words(words, False)
