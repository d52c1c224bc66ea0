"""What tfctl says about why it does something is true, and every command says the same."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from node_tree import wait_until

from tests.cluster.hosts import Hosts
from tests.cluster.test_silent_hosts import until_followed

#: The ps stays, and worker 0 ends with the exit code that is given.
ENDING = (
    'command: [sh, -c, "if [ {role} = ps ]; then exec sleep 600; fi; sleep 0.2; exit %d"]\nroles: {ps: 1, worker: 1}\n'
)
#: Each worker fails once there is a file `fail` beside its code; the last one stays.
FAILING = (
    "command: [sh, -c, 'test {index} = 2 && exec sleep 600; until test -e fail; do sleep 0.05; done; exit 3']\n"
    "roles: {worker: 3}\n"
)


def test_wait_says_that_a_task_had_nothing_left_to_do_only_when_the_job_succeeded(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("good", ENDING % 0), "--wait")
    assert (done.code, "stopped ps/0, which had nothing left to do" in done.err) == (0, True), done.err
    done = hosts("start", hosts.file("bad", ENDING % 3), "--wait")
    assert (done.code, "stopped ps/0, because worker/0 failed\n" in done.err) == (100, True), done.err
    assert "nothing left to do" not in done.err


def test_wait_says_that_a_worker_which_still_worked_was_stopped_because_the_job_succeeded(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {role} = chief || exec sleep 600']\nroles: {chief: 1, worker: 1}\n"
    done = hosts("start", hosts.file("led", text), "--wait")
    assert (done.code, "stopped worker/0, because the job succeeded\n" in done.err) == (0, True), done.err


@pytest.mark.extended
def test_every_command_names_the_same_task_and_reason_when_two_tasks_have_failed(hosts: Hosts) -> None:
    """The host of the task that failed first is the last one to report it."""
    with hosts.behind_relay("node2") as relay:
        hosts.ok("start", hosts.file("two", FAILING))
        with hosts.begin("wait", "two") as waiting:
            until_followed(hosts, "node2")
            relay.frozen = True
            for name, other in (("node2", 1), ("node1", 0)):
                (hosts.trees[name] / "var/lib/tfctl/jobs/two/1/code/fail").touch()
                ends = hosts.trees[name] / f"var/lib/tfctl/jobs/two/1/worker-{other}/ends.jsonl"
                wait_until(functools.partial(_has_ended, ends))
            wait_until((hosts.trees["node3"] / "var/lib/tfctl/jobs/two/1/stopped/worker-2").exists)
            relay.frozen = False
            done = waiting.done()
    reason = "worker/1 on node2 failed with exit code 3"
    assert done.code == 100
    assert "stopped worker/2, because worker/1 failed\n" in done.err
    assert done.err.endswith(f": {reason}\n"), done.err
    status = hosts.status("two")
    [listed] = json.loads(hosts.ok("list", "-o", "json"))["jobs"]
    assert [(shown["reason"], shown["culprit"]) for shown in (status, listed)] == [(reason, "worker/1")] * 2
    assert reason in hosts.ok("status", "two")
    assert reason in hosts.ok("events", "two")


def _has_ended(ends: Path) -> bool:
    """Return whether the file has an end line. Its first line says that the task has begun."""
    return ends.exists() and '"result"' in ends.read_text()
