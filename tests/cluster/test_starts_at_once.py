"""Several starts of one job at the same time, on hosts of which each one has others: exactly one of them wins."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from node_tree import wait_until

from tests.cluster.guards import paused_guard
from tests.cluster.hosts import STAY, Client, Done, Hosts
from tfctl.errors import Busy
from tfctl.jobs.other_hosts import OtherHosts, Outrun
from tfctl.remote import inventory

#: Runs that sort before and after all others.
FIRST, LAST = "00000000", "ffffffff"


def on(hosts: Hosts, name: str, where: str, command: str = STAY) -> Path:
    """Write the job file into a directory of its own, with a worker on each host of this pattern."""
    folder = hosts.folder / f"{name}-on-{where.replace(':', '-')}"
    folder.mkdir(exist_ok=True)
    text = (
        f"name: {name}\nstrategy: custom\nstack: none\n{command}roles: {{worker: {{per_host: 1, hosts: '{where}'}}}}\n"
    )
    (folder / "job.yaml").write_text(text)
    return folder / "job.yaml"


def racing(hosts: Hosts, name: str, layouts: Sequence[str]) -> list[Done]:
    """Start the job on the hosts of each of these patterns at once. No client sends a plan before all have asked the
    other hosts."""
    files = [on(hosts, name, where) for where in layouts]
    with contextlib.ExitStack() as stack:
        held = {host: stack.enter_context(hosts.delayed(host, "plan")) for host in hosts.names}
        clients = [stack.enter_context(hosts.begin("start", file)) for file in files]
        for first in {where.split(":")[0] for where in layouts}:
            wait_until(held[first][0], timeout=40)
        for _, release in held.values():
            release()
        return [client.done() for client in clients]


@pytest.mark.parametrize(
    "layouts",
    [
        ("node1", "node2"),
        ("node1", "node2", "node3"),
        ("node1:node2", "node3"),
        ("node1:node2", "node2:node3"),
        ("node1:node3", "node2:node3"),
    ],
)
def test_one_of_several_starts_wins_whichever_hosts_they_have(layouts: tuple[str, ...], hosts: Hosts) -> None:
    ends = racing(hosts, "race", layouts)
    assert sorted(end.code for end in ends) == [0, *[5] * (len(layouts) - 1)], ends
    [winner] = [where for where, end in zip(layouts, ends, strict=True) if end.code == 0]
    assert len(hosts.alive()) == len(winner.split(":"))
    assert all("→ stop it first: tfctl stop race\n" in end.err for end in ends if end.code), ends
    hosts.ok("stop", "race")
    hosts.untouched()


@pytest.mark.extended
@pytest.mark.timeout(300)
@pytest.mark.parametrize("layouts", [("node1", "node2"), ("node1:node2", "node2:node3")])
def test_one_of_two_starts_wins_each_time(layouts: tuple[str, ...], hosts: Hosts) -> None:
    """Chance decides which run sorts first and which start reserves first."""
    for number in range(10):
        ends = racing(hosts, f"race{number}", layouts)
        assert sorted(end.code for end in ends) == [0, 5], (number, ends)
        hosts.ok("stop", f"race{number}")


@pytest.mark.parametrize(("early", "late"), [("node1", "node2"), ("node2", "node1")])
def test_a_start_wins_with_its_output_although_the_other_one_had_created_it(
    early: str, late: str, hosts: Hosts
) -> None:
    """The start that gives up removes the directories that it has created, on a file system that the hosts share."""
    shared, other = hosts.trees["node1"] / "srv/tfctl", hosts.trees["node2"] / "srv/tfctl"
    other.rmdir()
    other.symlink_to(shared)
    for number in range(3):
        name = f"raced{number}"
        with (
            hosts.delayed(early, "reserved", "node") as (made, answer),
            hosts.delayed(late, "plan") as (waits, release),
            hosts.begin("start", on(hosts, name, late)) as two,
        ):
            wait_until(waits)
            with hosts.begin("start", on(hosts, name, early)) as one:
                wait_until(made)
                assert (shared / name).is_dir()
                release()
                wait_until(lambda: hosts.reserved(late))
                answer()
                ends = [one.done(), two.done()]
        assert sorted(end.code for end in ends) == [0, 5], ends
        assert hosts.states(name) == {"worker/0": "running"}
        assert (shared / name).is_dir()
        hosts.ok("stop", name)


class Rival(NamedTuple):
    """A start that has reserved on node1 and goes on once it is told so. ``others``: what another one, on node2 and
    node3, learns about it; ``said``: what that one says."""

    client: Client
    go_on: Callable[[], None]
    others: OtherHosts
    said: list[str]


@pytest.fixture
def rival(hosts: Hosts) -> Iterator[Rival]:
    said: list[str] = []
    node1 = [host for host in inventory.load(hosts.inventory).hosts if host.name == "node1"]
    with (
        hosts.delayed("node1", "reserved", "node") as (reserved, go_on),
        hosts.begin("start", on(hosts, "rival", "node1")) as client,
        OtherHosts("rival", node1, said.append) as others,
    ):
        wait_until(reserved, timeout=40)
        yield Rival(client, go_on, others, said)


IN_PROGRESS = "node1: another start of job rival is in progress there (run "


def test_a_start_does_not_reserve_while_another_one_has_reserved(rival: Rival) -> None:
    with pytest.raises(Outrun, match="another start of job rival is in progress there"):
        rival.others.highest()
    rival.go_on()
    assert rival.client.done().code == 0
    with pytest.raises(Busy, match=r"node1: job rival runs there already \(run [0-9a-f]{8}, attempt 1\): worker/0"):
        rival.others.highest()


def test_a_start_says_once_that_it_tries_again_while_another_one_has_reserved(rival: Rival, hosts: Hosts) -> None:
    with hosts.begin("start", on(hosts, "rival", "node2")) as client:
        client.until(err=IN_PROGRESS)
        threading.Timer(5, rival.go_on).start()  # it tries again at least once a second
        done = client.done()
    assert (done.code, done.err.count("; trying again\n")) == (5, 1), done
    assert "node1: job rival runs there already (run " in done.err


def test_a_start_gives_up_at_once_when_it_sees_one_whose_run_sorts_before_its_own(rival: Rival) -> None:
    with pytest.raises(Outrun) as caught:
        rival.others.require_alone(LAST, 1, 60)
    assert caught.value.first.startswith(IN_PROGRESS)
    assert rival.said == []


def test_a_start_waits_until_one_whose_run_sorts_after_its_own_has_given_up(rival: Rival) -> None:
    threading.Timer(1, rival.client.process.kill).start()
    rival.others.require_alone(FIRST, 1, 60)
    [said] = rival.said
    assert said.startswith(IN_PROGRESS) and said.endswith("; waiting until it has ended")


def test_a_start_gives_up_when_one_whose_run_sorts_after_its_own_goes_on(rival: Rival) -> None:
    """That one may have asked before."""
    threading.Timer(1, rival.go_on).start()
    with pytest.raises(Busy, match=r"node1: job rival runs there already \(run [0-9a-f]{8}, attempt 1\): worker/0"):
        rival.others.require_alone(FIRST, 1, 60)
    assert rival.client.done().code == 0


def test_a_start_gives_up_when_another_one_makes_no_progress(rival: Rival) -> None:
    with pytest.raises(Outrun, match="another start of job rival is in progress there"):
        rival.others.require_alone(FIRST, 1, 0.5)


def test_a_start_is_the_next_attempt_when_the_job_has_run_elsewhere_since_it_has_asked(hosts: Hosts) -> None:
    with (
        hosts.delayed("node1", "plan") as (waits, release),
        hosts.begin("start", on(hosts, "brief", "node1")) as client,
    ):
        wait_until(waits)
        hosts.ok("start", on(hosts, "brief", "node2", "command: date\n"), "--wait")
        release()
        done = client.done()
    assert done.code == 0, done
    assert "brief has been started and has ended meanwhile; trying again\n" in done.err
    assert "brief: attempt 2, 1 task runs on 1 host\n" in done.err


def test_restart_starts_nothing_when_the_job_was_started_elsewhere_meanwhile(hosts: Hosts) -> None:
    hosts.ok("start", on(hosts, "again", "node1"))
    with hosts.delayed("node1", "rerun") as (waits, release), hosts.begin("restart", "again") as client:
        wait_until(waits)
        hosts.ok("start", on(hosts, "again", "node2"))
        release()
        done = client.done()
    assert (done.code, done.out) == (5, ""), done
    assert "node2: job again runs there already (run " in done.err
    assert "again was stopped, but its next attempt could not be started" in done.err
    assert hosts.alive() == ["tfctl-again-worker-0.service"]
    assert hosts.trees["node1"].alive() == []


@pytest.mark.extended
def test_a_start_waits_for_a_guard_elsewhere_that_has_not_yet_decided_what_follows_a_failure(guarded: Hosts) -> None:
    flag = guarded.trees["node1"] / "told"
    failing = f"command: [sh, -c, 'until test -e {flag}; do sleep 0.1; done; exit 4']\npolicy: {{max_attempts: 5}}\n"
    guarded.ok("start", on(guarded, "tried", "node1", failing))
    with paused_guard(guarded, "node1", "tried"):
        flag.touch()
        wait_until(lambda: guarded.states("tried") == {"worker/0": "failed"})
        client = guarded.begin("start", on(guarded, "tried", "node3"))
        client.until(err="node1: the guard of job tried still runs there (run ")
    with client:
        done = client.done()
    assert done.code == 5, done
    assert "and its guard will start the next attempt soon\n  → stop it first: tfctl stop tried\n" in done.err
    guarded.ok("stop", "tried")


def test_a_start_connects_once_to_each_host_outside_its_layout(hosts: Hosts) -> None:
    with hosts.behind_relay("node2") as relay:
        hosts.ok("start", on(hosts, "alone", "node1"))
        assert len(relay.sockets) == 2  # both ends of one connection
