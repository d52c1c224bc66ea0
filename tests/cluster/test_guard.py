"""The guards of a job apply its policy without a client."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from node_tree import wait_until
from strangers_at_port import strangers_at

from tests.cluster.guards import (
    established,
    head_port,
    job,
    kill_guard,
    paused_guard,
    running_until_flagged,
    two_kinds,
    units,
)
from tests.cluster.hosts import STAY, Client, Hosts

BENCH = Path(__file__).parents[2] / "scripts/bench"


def guard_files(hosts: Hosts) -> list[str]:
    return [file for tree in hosts.trees.values() for file in tree.files() if "guard" in file and "run/" in file]


def test_guards_stop_parameter_servers_once_the_chief_has_succeeded_and_then_leave(guarded: Hosts) -> None:
    script, flag = running_until_flagged(guarded)
    two_kinds(guarded, "ends", script)
    assert any(unit.startswith("tfctlguard-") for unit in units(guarded))
    flag.touch()
    wait_until(lambda: not units(guarded), lambda: str(units(guarded)))
    found = job(guarded, "ends")
    assert found["state"] == "succeeded"
    assert {task["state"] for task in found["tasks"] if task["role"] == "server"} == {"stopped"}
    assert not guard_files(guarded)
    events = guarded("events", "ends").out
    assert "chief/0 has succeeded" in events


def test_a_failed_job_is_started_again_as_the_next_attempt(guarded: Hosts) -> None:
    """`logs -f` follows it, although one host is late to report the attempt: its tasks are not lost there."""
    first, flag = running_until_flagged(guarded, "exit 7")
    chief = f'echo attempt "$TFCTL_ATTEMPT"; if [ "$TFCTL_ATTEMPT" = 1 ]; then {first}; fi; sleep 2'
    two_kinds(guarded, "again", chief, ", max_attempts: 2, max_restarts: 0")
    follow = ("logs", "-f", "--job", "again")
    with guarded.begin(*follow) as early, guarded.late("node1", "show") as (hold, release):
        early.until(out="attempt 1\n")
        with paused_guard(guarded, "node1", "again"):
            flag.touch()
            wait_until(lambda: job(guarded, "again")["state"] == "failed", lambda: early.err)
            other = guarded.begin(*follow)
            other.until(out="attempt 1\n")
        with other:
            # The held client reports its host as silent, and asks again, after 15 s.
            wait_until(lambda: bool(re.search(r"attempt 2 in [0-6] s", job(guarded, "again")["reason"])))
            hold()
            other.until(out="attempt 2\n", err="~~ attempt 2 has begun")
            release()
            for followed in (early.done(), other.done()):
                attempts = re.findall(r"attempt [12]$", followed.out, re.MULTILINE)
                assert (followed.code, attempts) == (0, ["attempt 1", "attempt 2"]), followed.err
                assert "~~ attempt 2 has begun" in followed.err
                assert "lost" not in followed.err
    waited = guarded("wait", "again")
    assert waited.code == 0, waited.err
    found = job(guarded, "again")
    assert (found["state"], found["attempt"]) == ("succeeded", 2)
    assert "attempt 2 in 10 s" in guarded("events", "again").out
    wait_until(lambda: not units(guarded), lambda: str(units(guarded)))


def test_a_job_is_not_tried_again_after_an_exit_code_that_the_policy_excludes(guarded: Hosts) -> None:
    two_kinds(guarded, "final", "sleep 1; exit 3", ", max_attempts: 3, max_restarts: 0, fail_exit_codes: [3]")
    waited = guarded("wait", "final")
    assert waited.code == 100
    assert job(guarded, "final")["attempt"] == 1
    wait_until(lambda: not units(guarded), lambda: str(units(guarded)))


@pytest.mark.extended
def test_a_host_without_contact_to_the_head_ends_its_tasks_after_the_lease(guarded: Hosts) -> None:
    """The next start is clean, although the head still has a task of this job."""
    two_kinds(guarded, "cut", "sleep 600", ", lease: 10s")
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    kill_guard(guarded, "node1", "cut", for_good=True)
    wait_until(lambda: not [unit for name in ("node2", "node3") for unit in guarded.trees[name].alive()], timeout=60)
    assert "policy: lease" in guarded("status", "cut").out
    two_kinds(guarded, "after", "exit 0")
    assert guarded("wait", "after").code == 0
    assert guarded("stop", "cut").code == 0
    wait_until(lambda: not units(guarded), lambda: str(units(guarded)))


@pytest.mark.extended
def test_a_job_ends_as_soon_as_anybody_sees_that_a_host_was_rebooted(guarded: Hosts) -> None:
    """Nothing on the rebooted host can tell the head, which otherwise waits for the lease."""
    text = f"{STAY}roles: {{worker: {{per_host: 1}}}}\n"
    guarded.ok("start", guarded.file("reboot", text))
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    guarded.trees["node3"].lose_power()
    found = job(guarded, "reboot")
    assert (found["state"], "worker/2 on node3 is lost" in found["reason"]) == ("failed", True)
    wait_until(lambda: not units(guarded), lambda: str(units(guarded)), 20)
    assert "worker/2 has failed" in guarded("events", "reboot").out
    assert job(guarded, "reboot")["reason"] == found["reason"]


def test_the_bench_starts_the_same_job_without_guards(guarded: Hosts) -> None:
    found = re.search(r'WITHOUT_GUARDS = """\n(.*?)"""', BENCH.read_text(), re.DOTALL)
    assert found
    words = guarded.words("start", guarded.file("bare", f"{STAY}roles: {{worker: {{per_host: 1}}}}\n"))
    program = guarded.folder / "without_guards.py"
    program.write_text(found[1])
    with Client(words, guarded.folder, program=program) as client:
        assert client.done().code == 0, client.err
    assert [unit for unit in units(guarded) if "guard" in unit] == guard_files(guarded) == []
    assert guarded("stop", "bare").code == 0


@pytest.mark.extended
def test_a_guard_that_was_killed_is_started_again_and_goes_on(guarded: Hosts) -> None:
    script, flag = running_until_flagged(guarded)
    two_kinds(guarded, "killed", script)
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    for name in ("node1", "node2"):
        kill_guard(guarded, name, "killed")
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    flag.touch()
    wait_until(lambda: not units(guarded), lambda: str(units(guarded)))
    assert job(guarded, "killed")["state"] == "succeeded"


@pytest.mark.extended
def test_members_connect_and_obey_while_strangers_hold_the_port_of_the_head(guarded: Hosts) -> None:
    script, flag = running_until_flagged(guarded)
    two_kinds(guarded, "crowded", script)
    with strangers_at(head_port(guarded, "crowded"), ["127.0.0.1"], idle=900, sending=100):
        for name in ("node2", "node3"):
            kill_guard(guarded, name, "crowded")
        flag.touch()
        wait_until(lambda: not units(guarded), lambda: str(units(guarded)))
    found = job(guarded, "crowded")
    assert found["state"] == "succeeded"
    assert {task["state"] for task in found["tasks"] if task["role"] == "server"} == {"stopped"}


@pytest.mark.extended
def test_stopping_a_job_ends_its_guards_and_a_pending_attempt(guarded: Hosts) -> None:
    two_kinds(guarded, "pending", "sleep 1; exit 4", ", max_attempts: 5, max_restarts: 0")
    wait_until(lambda: job(guarded, "pending")["state"] == "starting", lambda: str(job(guarded, "pending")), 30)
    assert "attempt 2 in" in job(guarded, "pending")["reason"]
    assert guarded("stop", "pending").code == 0
    wait_until(lambda: not units(guarded), lambda: str(units(guarded)))
    found = job(guarded, "pending")
    assert (found["state"], found["attempt"]) == ("failed", 1)
