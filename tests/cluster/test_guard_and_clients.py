"""`wait`, `stop` and `restart` agree with the guards of the job, whoever comes first."""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise

import pytest
from loopback import Impostor
from node_tree import wait_until

from tests.cluster.guards import (
    established,
    job,
    kill_guard,
    paused_guard,
    running_until_flagged,
    two_kinds,
    units,
)
from tests.cluster.hosts import Hosts

STAY = "exec sleep 600"


def guards_of(hosts: Hosts) -> list[str]:
    return [unit for unit in units(hosts) if re.fullmatch(r"tfctlguard-.*\.service", unit)]


def watching(hosts: Hosts) -> None:
    """Wait until a client that has just been started asks all hosts. The guards ask their systemd as well."""
    for name in hosts.trees:
        hosts.forget(name)
    wait_until(lambda: all(hosts.shown(name) and hosts.sessions(name) for name in hosts.trees))


def nothing_runs(hosts: Hosts) -> None:
    wait_until(lambda: not units(hosts), lambda: str(units(hosts)), timeout=60)


def test_stop_ends_a_job_that_a_client_waits_for(guarded: Hosts) -> None:
    two_kinds(guarded, "watched", STAY)
    with guarded.begin("wait", "watched") as waiting:
        watching(guarded)
        assert guarded("stop", "watched").code == 0
        assert waiting.done().code == 103
    nothing_runs(guarded)
    assert job(guarded, "watched")["state"] == "stopped"
    guarded.untouched()


@pytest.mark.extended
def test_clients_say_that_a_host_has_stopped_its_tasks_because_it_never_reached_the_head(guarded: Hosts) -> None:
    """Its guard gives up after a minute, or after the lease. The job goes on without the host."""
    (guarded.trees["node2"] / "cut-off").touch()
    two_kinds(guarded, "apart", STAY, ", lease: 10s")
    unheard = "node2 has not heard from the guard on node1 for 10 s (policy: lease)"
    with guarded.begin("wait", "apart") as waiting:
        waiting.until(err=f"{unheard}\n")
        found = job(guarded, "apart")
        assert (found["state"], found["reason"]) == ("running", unheard)
        done = guarded("wait", "apart", "--timeout", "1s")
        assert (done.code, done.err.splitlines()) == (101, [unheard, f"apart is running: {unheard}"])
        assert guarded("stop", "apart").code == 0
        assert waiting.done().err.count(unheard) == 1
    nothing_runs(guarded)


def test_start_with_wait_names_what_the_guards_have_stopped_before_it_sees_the_job(guarded: Hosts) -> None:
    text = f'command: [sh, -c, "test {{role}} = ps && {STAY}; exit 3"]\nroles: {{ps: 1, worker: 1}}\n'
    file = guarded.file("brief", text)
    with guarded.delayed("node1", "show") as (reached, go_on), guarded.begin("start", file, "--wait") as client:
        wait_until(reached)
        guarded.heal("node1")
        wait_until(lambda: guarded.states("brief") == {"ps/0": "stopped", "worker/0": "failed"})
        go_on()
        done = client.done()
    assert (done.code, "stopped ps/0, because worker/0 failed\n" in done.err) == (100, True), done.err
    later = guarded("wait", "brief")
    assert (later.code, "stopped" in later.err) == (100, False), later.err


def test_two_stops_at_once_both_succeed(guarded: Hosts) -> None:
    two_kinds(guarded, "twofold", STAY)
    with guarded.begin("stop", "twofold") as first, guarded.begin("stop", "twofold") as second:
        assert {first.done().code, second.done().code} == {0}
    nothing_runs(guarded)
    guarded.untouched()


def test_stop_at_the_moment_of_the_end_agrees_with_the_guard(guarded: Hosts) -> None:
    """Either the chief succeeded first, or the job was stopped; nothing is left in either case."""
    two_kinds(guarded, "moment", "sleep 1")
    wait_until(lambda: job(guarded, "moment")["tasks"][0]["state"] == "succeeded")
    assert guarded("stop", "moment").code == 0
    nothing_runs(guarded)
    assert job(guarded, "moment")["state"] == "succeeded"
    guarded.untouched()


@pytest.mark.extended
def test_wait_after_the_guards_have_left_reports_the_outcome(guarded: Hosts) -> None:
    two_kinds(guarded, "past", "sleep 1; exit 6", ", max_restarts: 0")
    nothing_runs(guarded)
    done = guarded("wait", "past")
    assert done.code == 100
    assert "exit code 6" in done.err


def test_interrupted_wait_leaves_the_job_to_its_guards(guarded: Hosts) -> None:
    script, flag = running_until_flagged(guarded)
    two_kinds(guarded, "left", script)
    with guarded.begin("wait", "left") as waiting:
        watching(guarded)
        waiting.process.send_signal(2)
        assert waiting.done().code == 130
    flag.touch()
    nothing_runs(guarded)
    assert job(guarded, "left")["state"] == "succeeded"


@pytest.mark.extended
def test_wait_gives_up_on_a_silent_head_although_the_job_has_failed(guarded: Hosts) -> None:
    """The guards that answer go on until the lease has passed."""
    script, flag = running_until_flagged(guarded, "exit 3")
    text = f"""\
        command: [sh, -c, {json.dumps(STAY)}]
        roles:
          first: {{replicas: 1, hosts: node1}}
          second: {{replicas: 1, hosts: node2, command: [sh, -c, {json.dumps(script)}]}}
          third: {{replicas: 1, hosts: node3}}
        policy: {{max_restarts: 0, lease: 40s}}
        """
    guarded.ok("start", guarded.file("headless", text))
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    with paused_guard(guarded, "node1", "headless"), closing(Impostor(hang_up=True)) as silent:
        flag.touch()
        wait_until(lambda: job(guarded, "headless")["state"] == "failed")
        inventory = guarded.told("node1", ansible_port=silent.port)
        done = guarded.with_inventory(inventory, "wait", "headless", "--host-timeout", "1s")
    assert done.code == 100, done.err
    assert "gave up after 1 s without an answer from node1; to wait longer: tfctl wait" in done.err
    assert guarded("stop", "headless").code == 0
    guarded.untouched()


def test_restart_of_a_running_job_gives_it_new_guards(guarded: Hosts) -> None:
    two_kinds(guarded, "fresh", 'if [ "$TFCTL_ATTEMPT" = 1 ]; then exec sleep 600; fi; sleep 1')
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    with guarded.begin("wait", "fresh") as waiting:
        watching(guarded)
        assert guarded("restart", "fresh").code == 0
        assert waiting.done().code == 103, "the attempt that it waits for was stopped"
    assert len(guards_of(guarded)) == 3
    assert guarded("wait", "fresh").code == 0
    nothing_runs(guarded)
    assert (job(guarded, "fresh")["state"], job(guarded, "fresh")["attempt"]) == ("succeeded", 2)


@pytest.mark.extended
def test_a_refused_start_leaves_the_guards_of_a_job_whose_tasks_have_ended_on_one_host(guarded: Hosts) -> None:
    """Without the guard of the head, the others would stop their tasks after the lease."""
    text = f"""\
        command: [sh, -c, {json.dumps(STAY)}]
        roles:
          first: {{replicas: 1, hosts: node1, command: [sh, -c, exit 0]}}
          second: {{replicas: 1, hosts: node2}}
          third: {{replicas: 1, hosts: node3}}
        """
    file = guarded.file("goes-on", text)
    guarded.ok("start", file)
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    wait_until(lambda: guarded.states("goes-on")["first/0"] == "succeeded")
    done = guarded("start", file)
    assert (done.code, done.out) == (5, "")
    assert "node1: the guard of job goes-on still runs on" in done.err
    assert "→ stop it first: tfctl stop goes-on" in done.err
    assert len(guards_of(guarded)) == 3
    assert established(guarded) == ["node2", "node3"]
    assert guarded.states("goes-on") == {"first/0": "succeeded", "second/0": "running", "third/0": "running"}
    assert guarded("stop", "goes-on").code == 0
    guarded.untouched()
    guarded.ok("start", file)
    assert guarded("stop", "goes-on").code == 0
    guarded.untouched()


def test_a_job_that_has_just_failed_can_be_started_again(guarded: Hosts) -> None:
    """Its guards leave only seconds after that."""
    text = f"""\
        command: [sh, -c, {json.dumps(STAY)}]
        roles:
          chief: {{replicas: 1, hosts: node1, command: [sh, -c, sleep 2; exit 3]}}
          server: {{replicas: 2, hosts: "node2,node3"}}
        policy: {{success: chief, max_restarts: 0}}
        """
    file = guarded.file("over", text)
    assert guarded("start", file, "--wait").code == 100
    guarded.ok("start", file)
    assert job(guarded, "over")["attempt"] == 2
    assert guarded("stop", "over").code == 0
    guarded.untouched()


@pytest.mark.extended
def test_status_with_watch_shows_a_pending_attempt_once(guarded: Hosts) -> None:
    """The time until it starts is no change. What the object does not show may change once, as when a host reports."""
    two_kinds(guarded, "counted", "sleep 1; exit 4", ", max_attempts: 5, max_restarts: 0")
    with guarded.begin("status", "counted", "--watch", "-o", "json") as watching:
        watching.until(out="attempt 2 in")
        time.sleep(4)
        assert guarded("stop", "counted").code == 0
        pending = [found for found in watching.done().objects if "attempt 2 in" in found["reason"]]
    for found in pending:
        del found["reason"]
    assert sum(now == before for before, now in pairwise(pending)) <= 1, pending


def test_wait_that_times_out_between_a_failure_and_the_next_attempt_does_not_say_that_the_job_is_over(
    guarded: Hosts,
) -> None:
    """A script that reads exit code 100 would start the job a second time."""
    two_kinds(guarded, "between", "sleep 1; exit 4", ", max_attempts: 5, max_restarts: 0")
    with paused_guard(guarded, "node1", "between"):
        wait_until(lambda: job(guarded, "between")["state"] == "failed", timeout=30)
        done = guarded("wait", "between", "--timeout", "0")
        assert (done.code, "its guard may start another attempt" in done.err) == (101, True)
    assert guarded("stop", "between").code == 0


@pytest.mark.extended
def test_restart_takes_the_place_of_a_pending_attempt(guarded: Hosts) -> None:
    script = 'test "$TFCTL_ATTEMPT" = 1 && { sleep 1; exit 4; }; sleep 1'
    two_kinds(guarded, "early", script, ", max_attempts: 5, max_restarts: 0")
    wait_until(lambda: "attempt 2 in" in job(guarded, "early")["reason"], lambda: str(job(guarded, "early")), 30)
    done = guarded("restart", "early", "--wait")
    assert done.code == 0, done.err
    assert job(guarded, "early")["attempt"] == 2
    nothing_runs(guarded)


@pytest.mark.extended
def test_restart_of_one_task_is_no_failure_for_the_guards(guarded: Hosts) -> None:
    script, flag = running_until_flagged(guarded)
    two_kinds(guarded, "one", script)
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    for _ in range(2):
        assert guarded("restart", "one", "server", "1").code == 0
    flag.touch()
    assert guarded("wait", "one").code == 0
    assert job(guarded, "one")["attempt"] == 1
    nothing_runs(guarded)


@pytest.mark.parametrize(
    "fault", ["head killed", "head gone", "head rebooted", "member killed", "member gone", "member rebooted"]
)
def test_stop_during_a_fault_of_a_guard_leaves_nothing(fault: str, guarded: Hosts) -> None:
    two_kinds(guarded, "fault", STAY, ", lease: 30s")
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    who, what = fault.split()
    name = "node1" if who == "head" else "node2"
    if what == "rebooted":
        guarded.trees[name].lose_power()
    else:
        kill_guard(guarded, name, "fault", for_good=what == "gone")
    done = guarded("stop", "fault")
    assert done.code == 0, done.err
    nothing_runs(guarded)
    # A host that is rebooted loses its tasks before the stop.
    assert job(guarded, "fault")["state"] == ("failed" if what == "rebooted" else "stopped")
    guarded.untouched()


@pytest.mark.parametrize("words", [["uneven"], []], ids=["named", "not named"])
def test_a_task_that_fails_because_others_were_stopped_counts_as_stopped_on_a_host_that_refused(
    words: list[str], guarded: Hosts
) -> None:
    ended = guarded.trees["node2"] / "var/lib/tfctl/jobs/uneven/1/code/ended"
    server = "trap ': >ended; exit 0' TERM; while :; do sleep 0.1; done"
    chief = f"until test -e {ended}; do sleep 0.1; done; exit 1"
    text = f"""\
        command: [sh, -c, {json.dumps(server)}]
        roles:
          chief: {{replicas: 1, hosts: node1, command: [sh, -c, {json.dumps(chief)}]}}
          server: {{replicas: 2, hosts: "node2,node3"}}
        policy: {{success: chief, max_restarts: 0}}
        """
    guarded.ok("start", guarded.file("uneven", text))
    wait_until(lambda: len(established(guarded)) == 2, timeout=30)
    guarded.refuse("node1", "echo no >&2; exit 1")
    assert guarded("stop", *words).code != 0
    guarded.heal("node1")
    nothing_runs(guarded)
    assert ended.exists()
    assert job(guarded, "uneven")["state"] == "stopped"


@pytest.mark.extended
def test_stop_ends_an_evaluator_that_may_still_finish(guarded: Hosts) -> None:
    _start_with_evaluator(guarded, "draining", STAY, "60s")
    wait_until(lambda: job(guarded, "draining")["state"] == "succeeded", lambda: str(job(guarded, "draining")))
    assert states(guarded, "draining")["evaluator"] == "running"
    assert guarded("stop", "draining").code == 0
    nothing_runs(guarded)
    assert job(guarded, "draining")["state"] == "succeeded"
    guarded.untouched()


def test_evaluator_may_finish_after_the_chief(guarded: Hosts) -> None:
    script, flag = running_until_flagged(guarded)
    _start_with_evaluator(guarded, "drained", script, "60s")
    wait_until(lambda: states(guarded, "drained")["ps"] == "stopped", lambda: str(job(guarded, "drained")))
    assert states(guarded, "drained")["evaluator"] == "running"
    flag.touch()
    nothing_runs(guarded)
    assert (job(guarded, "drained")["state"], states(guarded, "drained")["evaluator"]) == ("succeeded", "succeeded")


@pytest.mark.extended
def test_evaluator_is_stopped_when_its_time_is_over(guarded: Hosts) -> None:
    _start_with_evaluator(guarded, "longer", STAY, "1s")
    nothing_runs(guarded)
    assert job(guarded, "longer")["state"] == "succeeded"
    assert states(guarded, "longer") == {"chief": "succeeded", "ps": "stopped", "evaluator": "stopped"}


def states(hosts: Hosts, name: str) -> dict[str, str]:
    """Return the state of the only task of each role."""
    return {task["role"]: task["state"] for task in job(hosts, name)["tasks"]}


def _start_with_evaluator(hosts: Hosts, name: str, evaluator: str, drain: str) -> None:
    text = f"""\
        command: [sh, -c, {json.dumps(STAY)}]
        roles:
          chief: {{replicas: 1, hosts: node1, command: [sh, -c, sleep 1]}}
          ps: {{replicas: 1, hosts: node2}}
          evaluator: {{replicas: 1, hosts: node3, command: [sh, -c, {json.dumps(evaluator)}]}}
        policy: {{success: chief, drain: {drain}}}
        """
    hosts.ok("start", hosts.file(name, text))


@pytest.mark.extended
def test_restart_notifies_as_the_first_attempt_did(guarded: Hosts) -> None:
    with receiver() as (url, told):
        two_kinds(guarded, "told", "sleep 1; exit 5", f", max_restarts: 0, notify: {{url: '{url}'}}")
        nothing_runs(guarded)
        assert guarded("restart", "told").code == 0
        nothing_runs(guarded)
        assert [(one["attempt"], one["state"]) for one in told] == [(1, "failed"), (2, "failed")]
    assert not re.search(url, guarded("events", "told").out)
    kept = [str(path) for tree in guarded.trees.values() for path in tree.path.rglob("guard.key")]
    assert len(kept) == 1, "only the head notifies"
    assert guarded("stop", "told").code == 0
    guarded.untouched()


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Serve a URL that takes POSTs. Yield it, and the objects that have arrived."""
    told: list[dict[str, object]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/secret", told
        server.shutdown()
