"""Whole commands with this machine as one host beside others that are reached by ssh, and alone."""

from __future__ import annotations

import grp
import json
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from loopback import answering, ask
from node_tree import wait_until

from tests.cluster.hosts import STAY, Done, Hosts
from tests.cluster.test_pull import put
from tfctl.cli import main

#: Where this machine is in the inventory.
HERE = "node3"
Run = Callable[..., Done]


@pytest.fixture
def inventory(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The three hosts, of which the last is this machine. tfctl runs as an ordinary user."""
    found, programs = hosts.local(HERE)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    def no_group(name: str) -> grp.struct_group:
        raise KeyError(name)

    monkeypatch.setattr(grp, "getgrnam", no_group)
    return found


@pytest.fixture
def run(hosts: Hosts, inventory: Path) -> Iterator[Run]:
    """Run tfctl with this inventory. No login at the third server may happen."""
    before = hosts.logins(HERE)
    yield lambda *words: hosts.with_inventory(inventory, *words)
    assert hosts.logins(HERE) == before


def test_a_job_starts_restarts_and_stops_beside_hosts_that_are_reached_by_ssh(hosts: Hosts, run: Run) -> None:
    started = run("start", hosts.file("mixed", STAY + "roles: {worker: 3}\n"))
    assert started.code == 0, started.err
    status = json.loads(run("status", "mixed", "-o", "json").out)
    places = {task["host"]: (task["address"], task["state"]) for task in status["tasks"]}
    assert places == {f"node{number}": (f"10.9.0.{number}", "running") for number in (1, 2, 3)}
    assert hosts.trees[HERE].alive()
    assert run("logs", "-j", "mixed").out.count("begun") == 3
    assert run("restart", "mixed", "worker", "2").code == 0
    stopped = run("stop", "mixed")
    assert stopped.code == 0, stopped.err
    assert run("wait", "mixed").code == 103
    hosts.untouched()


def test_lines_are_followed_and_outputs_are_pulled(hosts: Hosts, run: Run, tmp_path: Path) -> None:
    command = 'command: [sh, -c, "echo one; sleep 1; echo two"]\nroles: {worker: 3}\n'
    done = run("start", hosts.file("brief", command), "--follow")
    assert done.code == 0, done.err
    assert done.out.count("one") == done.out.count("two") == 3
    assert {line.split()[0] for line in done.out.splitlines() if "two" in line} == {"worker/0", "worker/1", "worker/2"}
    put(hosts, HERE, "brief", model="weights")
    pulled = run("pull", "brief", tmp_path)
    assert pulled.code == 0, pulled.err
    assert (tmp_path / "output" / HERE / "model").read_text() == "weights"
    assert (tmp_path / "attempt-1/worker-2.log").read_text() == "one\ntwo\n"


def test_code_is_sent_and_a_command_runs_beside_a_task(hosts: Hosts, run: Run, inventory: Path) -> None:
    file = hosts.file(
        "coded",
        'code: .\ncommand: ["./task.sh"]\nroles: {worker: 3}\n',
        **{"task.sh": "echo ran here\nexec sleep 600\n"},
    )
    started = run("start", file)
    assert started.code == 0, started.err
    wait_until(lambda: run("logs", "-j", "coded").out.count("ran here") == 3)
    with redirect_stdout(TextIOWrapper(BytesIO(), write_through=True)) as out:
        words = ["exec", "worker", "2", "-i", str(inventory), "--", "sh", "-c", "echo beside; exit 3"]
        assert main.run(words) == 3
        assert out.buffer.getvalue() == b"beside\n"


def test_every_verb_about_hosts_includes_this_machine(hosts: Hosts, run: Run) -> None:
    assert run("start", hosts.file("seen", STAY + "roles: {worker: 3}\n")).code == 0
    nodes = json.loads(run("nodes", "-o", "json").out)["nodes"]
    assert [node["state"] for node in nodes] == [nodes[0]["state"]] * 3
    for words in (
        ["list"],
        ["top", "--once"],
        ["events", "seen"],
        ["trace", "seen"],
        ["why", "seen"],
        ["prune", "--dry-run"],
    ):
        done = run(*words)
        assert done.code == 0, (words, done)
        assert "node3:" not in done.err, (words, done.err)


def test_a_start_is_undone_everywhere_when_this_machine_refuses(hosts: Hosts, run: Run) -> None:
    hosts.refuse(HERE, "echo 'sudo: a password is required' >&2; exit 1")
    done = run("start", hosts.file("refused", STAY + "roles: {worker: 3}\n"))
    assert done.code == 8
    assert "node3: sudo does not permit this user to run" in done.err
    assert "tfctl provision" in done.err
    hosts.untouched()


def test_forward_and_ssh_need_no_ssh_for_a_task_of_this_machine(hosts: Hosts, run: Run) -> None:
    assert run("start", hosts.file("near", STAY + "roles: {worker: 3}\n")).code == 0
    command = json.loads(run("ssh", "worker", "2", "-o", "json").out)["command"]
    assert command == [os.environ.get("SHELL") or "/bin/sh"]
    with answering(bytes.upper) as port:
        done = run("forward", "worker", f"2:{port}", port)
        assert (done.code, f"connect to 127.0.0.1:{port} directly" in done.err) == (2, True), done
        assert ask(port, b"one") == b"ONE"


@pytest.mark.usefixtures("run")
def test_a_host_that_is_alone_in_a_job_has_a_loopback_address(hosts: Hosts) -> None:
    alone = hosts.folder / "alone.ini"
    alone.write_text("localhost ansible_connection=local\n[all:vars]\ntfctl_ports=23400-23499\n")
    file = hosts.file("single", STAY + "roles: {worker: 2}\n")
    assert "127.0.0.1:23400" in hosts.with_inventory(alone, "render", file).out
    started = hosts.with_inventory(alone, "start", file)
    assert started.code == 0, started.err
    tasks = json.loads(hosts.with_inventory(alone, "status", "single", "-o", "json").out)["tasks"]
    assert [(task["host"], task["address"], task["state"]) for task in tasks] == [
        ("localhost", "127.0.0.1", "running")
    ] * 2
    assert hosts.with_inventory(alone, "stop", "single").code == 0


def test_an_address_that_cannot_be_found_has_to_be_set(hosts: Hosts, run: Run, inventory: Path) -> None:
    """The other hosts have addresses to which this machine has no route, or only that of loopback."""
    text = (
        inventory.read_text()
        .replace(" tfctl_address=10.9.0.3", "")
        .replace("tfctl_address=10.9.0.", "tfctl_address=127.0.9.")
    )
    inventory.write_text(text)
    done = run("start", hosts.file("unknown", STAY + "roles: {worker: 3}\n"))
    assert done.code == 3, done
    assert "node3: " in done.err
    assert "tfctl_address" in done.err
    hosts.untouched()
