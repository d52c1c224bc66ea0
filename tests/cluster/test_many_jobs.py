"""Many jobs on the same hosts: starts that compete, starts that wait, and jobs that are over."""

from __future__ import annotations

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts
from tfctl.jobs import code
from tfctl.jobs.start import start
from tfctl.model import layout, load
from tfctl.remote import inventory
from tfctl.remote.fleet import Fleet

ONE = "roles: {worker: {replicas: 1, hosts: node1}}\n"
TWO = "roles: {worker: {replicas: 2, hosts: 'node1:node2'}}\n"


@pytest.mark.extended
def test_ten_starts_at_the_same_moment_all_succeed(guarded: Hosts) -> None:
    """The guards of node1 listen on this machine, which is node2 as well, so node2 has ports of its own."""
    text = guarded.inventory.read_text()
    guarded.inventory.write_text(re.sub(r"^(node2 .*)$", r"\1 tfctl_ports=23400-23499", text, flags=re.MULTILINE))
    files = [guarded.file(f"rush{number}", STAY + TWO) for number in range(10)]

    def begin(file: Path) -> list[tuple[str, int]]:
        """Start the job. Return its ports and that of its guard, with their hosts."""
        laid_out = layout.lay_out(load.load(file), inventory.load(guarded.inventory), str(file))
        with Fleet(laid_out.hosts) as fleet:
            packed = code.archive(code.select(laid_out.code, laid_out.include, laid_out.env_file))
            job = start(fleet, laid_out, packed, lambda _: None)
        return [(laid_out.head.host.name, job.guard_port), *((task.host.name, task.port) for task in job.tasks)]

    with ThreadPoolExecutor(10) as pool:
        ports = [one for job in pool.map(begin, files) for one in job]
    assert len(set(ports)) == 30
    assert len(guarded.alive()) == 20


@pytest.mark.extended
def test_a_start_in_the_queue_waits_for_ports_in_its_turn(hosts: Hosts) -> None:
    narrow = hosts.told("node1", tfctl_ports="23400-23400")
    hosts.inventory, before = narrow, hosts.inventory
    try:
        hosts.ok("start", hosts.file("holder", STAY + ONE))
        late = hosts("start", hosts.file("late", STAY + ONE))
        assert (late.code, "--queue" in late.err) == (5, True)
        with hosts.begin("start", hosts.file("first", STAY + ONE), "--queue", "-o", "json") as first:
            first.until(err="waiting: node1: 1 task, but fewer free ports in 23400-23400")
            with hosts.begin("start", hosts.folder / "late/job.yaml", "--queue") as second:
                second.until(err="waiting behind job first of ops on node1")
                second.process.send_signal(signal.SIGINT)
                assert second.done().code == 130
            hosts.ok("stop", "holder")
            done = first.done()
            assert (done.code, json.loads(done.out)["job"]) == (0, "first")
        wait_until(lambda: not list((hosts.trees["node1"] / "run/tfctl/queue").iterdir()))
        gone = hosts("start", hosts.folder / "late/job.yaml", "--queue", "--timeout", "0")
        assert (gone.code, "in the queue: node1: 1 task" in gone.err) == (5, True)
    finally:
        hosts.inventory = before


def test_prune_deletes_what_is_over_everywhere_and_nothing_that_runs(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("runs", STAY + "roles: {worker: 3}\n"))
    hosts("start", hosts.file("over", 'command: [sh, -c, "exit 0"]\nroles: {worker: 3}\n'), "--wait")
    refused = hosts("prune")
    assert (refused.code, "1 attempt of 1 job on 3 hosts" in refused.err, "--yes" in refused.err) == (2, True, True)
    assert hosts("prune", "runs").code == 5
    assert hosts("prune", "never").code == 7
    for words in (["--older-than", "1h"], ["--keep", "1"]):
        assert "there is nothing to delete" in hosts("prune", "--yes", *words).err
    [planned] = json.loads(hosts.ok("prune", "over", "--dry-run", "-o", "json"))["attempts"]
    assert (planned["job"], planned["hosts"]) == ("over", ["node1", "node2", "node3"])
    assert "over" in hosts.ok("list")
    done = hosts("prune", "--yes")
    assert (done.code, "deleted 1 attempt of 1 job on 3 hosts" in done.err) == (0, True)
    assert [job["job"] for job in json.loads(hosts.ok("list", "-o", "json"))["jobs"]] == ["runs"]
    assert len(hosts.alive()) == 3
    assert all((tree / "srv/tfctl/over").is_dir() for tree in hosts.trees.values())


def test_jobs_that_are_over_are_listed_and_shown_like_others(hosts: Hosts) -> None:
    falls = "command: [sh, -c, 'exit {index}']\nroles: {worker: 2}\n"
    assert hosts("start", hosts.file("falls", falls), "--wait").code == 100
    listed = [hosts.ok("list") for _ in range(2)]
    assert listed[0] == listed[1]
    assert listed[0].splitlines()[1].split()[:5] == ["falls", "1", "failed", "custom", "2"]
    [job] = json.loads(hosts.ok("list", "-o", "json"))["jobs"]
    assert (job["culprit"], [task["exit_code"] for task in job["tasks"]]) == ("worker/1", [0, 1])
    assert "worker/1" in hosts.ok("status")
    hosts.refuse("node3", "exit 127")
    listed_again = hosts("list")
    assert (listed_again.code, "failed" in listed_again.out) == (8, True)
