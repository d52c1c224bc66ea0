"""`tfctl nodes`: the state of every host, and which jobs hold its GPUs and ports."""

from __future__ import annotations

import json
import re
import sys

from node_tree import HERE

from tests.cluster.hosts import STAY, Hosts
from tfctl.cli.nodes import ranges

SMI = HERE / "fake_nvidia_smi.py"


def test_nodes_shows_every_host_and_asks_each_once(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("held", STAY + "roles: {ps: 1, worker: 3}\n"))
    (hosts.trees["node1"] / "etc/os-release").write_text('NAME="D"\nPRETTY_NAME="Debian 12"\n')
    for name in hosts.names:
        hosts.forget(name)
    done = hosts("nodes", "-o", "json")
    others = "node1, node2 and node3: the node part's version differs from this tfctl's\n  → tfctl provision"
    assert (done.code, done.err.startswith(others)) == (0, True)  # here they run from a checkout, which has no digest
    first, second, _ = done.objects[0]["nodes"]
    assert list(first) == [
        "host", "address", "state", "error", "protocol", "version", "os", "kernel", "systemd", "cpus", "load",
        "memory_mib", "stacks", "gpus", "gpu_trouble", "ports", "tasks", "disks", "stored_mib", "drifts", "cards",
        "current", "clock_offset",
    ]  # fmt: skip
    assert [first[key] for key in ("host", "address", "state", "error", "protocol", "os", "systemd", "gpus")] == [
        "node1", "10.9.0.1", "ready", None, 2, "Debian 12", 252, [],
    ]  # fmt: skip
    assert first["stacks"] == {"tf2.15": "tf2.15-ab"}
    assert first["cpus"] >= 1
    total, available = first["memory_mib"]
    assert 0 < available <= total
    tasks = {"23400": "job held, task ps/0", "23401": "job held, task worker/0"}
    assert first["ports"] == {**tasks, "23402": "the guard of job held"}
    assert first["tasks"][0] == {"job": "held", "role": "ps", "index": 0, "state": "running"}
    assert second["os"] is None
    assert [len([call for call in tree.calls() if call[:5] == "show "]) for tree in hosts.trees.values()] == [1, 1, 1]
    head, row, *_ = (re.split(r"\s{2,}", line) for line in hosts.ok("nodes").splitlines())
    assert head[0] == "HOST"
    assert row[:4] == ["node1", "ready", "Debian 12", "252"]
    assert row[5] == "tf2.15-ab"
    assert row[-3:] == ["none", "23400-23402", "held: ps/0 worker/0"]


def test_nodes_shows_free_space_and_what_jobs_have_left_and_names_a_host_that_is_full(hosts: Hosts) -> None:
    left = hosts.trees["node1"] / "var/lib/tfctl/jobs/old/1/code/checkpoint"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(3 * 2**20))
    (hosts.trees["node2"] / "var/lib/tfctl/jobs").symlink_to("/proc")  # a file system that never has room
    done = hosts("nodes", "-o", "json")
    assert done.code == 8
    full = "node2: /var/lib/tfctl/jobs has 0 MiB free; a start needs 190 MiB"
    assert f"{full}\n  → delete jobs that are over: tfctl prune --older-than 14d" in done.err
    first, second, _ = done.objects[0]["nodes"]
    assert [disk["path"] for disk in first["disks"]] == ["/var/lib/tfctl/jobs", "/srv/tfctl"]
    assert all(0 < disk["free_mib"] <= disk["total_mib"] for disk in first["disks"])
    assert (first["state"], first["stored_mib"]) == ("ready", 3)
    assert (second["state"], second["disks"][0]["free_mib"]) == ("unfit", 0)
    head, row, *_ = (re.split(r"\s{2,}", line) for line in hosts("nodes").out.splitlines())
    assert head[-5:-2] == ["DISK", "CODE", "GPUS"]
    assert (row[-3].endswith(" GiB free"), row[-2:]) == (True, ["0.0 GiB", "none"])


def test_nodes_says_what_has_changed_since_a_host_was_provisioned(hosts: Hosts) -> None:
    lost = [str(hosts.trees["node2"] / f"etc/tfctl/{number}") for number in range(7)]
    receipt = {
        "format": 1, "role": "job_host", "since": 1.0, "digest": "0", "manages": {"paths": lost}, "before": {},
        "created": {}, "installed": [], "fingerprint": {"paths": {path: {"kind": "link"} for path in lost}},
    }  # fmt: skip
    path = hosts.trees["node2"] / "var/lib/tfctl/provision/job_host.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(receipt))
    done = hosts("nodes")
    assert done.code == 0
    assert f"node2: {lost[0]} was removed since it was provisioned\n  {lost[1]} was removed" in done.err
    assert "\n  and 2 other changes\n  → tfctl provision INVENTORY --limit node2" in done.err
    nodes = hosts("nodes", "-o", "json").objects[0]["nodes"]
    assert [len(node["drifts"]) for node in nodes] == [0, 7, 0]


def test_nodes_says_why_a_host_does_not_answer(hosts: Hosts) -> None:
    hosts.refuse("node2", "exit 127")
    done = hosts("nodes")
    assert done.code == 8
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [
        ["node1", "ready"],
        ["node2", "unfit"],
        ["node3", "ready"],
    ]
    assert "node2: /usr/local/sbin/tfctl-node cannot be run\n  → tfctl provision" in done.err
    inventory = hosts.told("node3", ansible_port=9)
    done = hosts.with_inventory(inventory, "nodes", "-o", "json")
    assert done.code == 8
    states = [(node["state"], node["error"] and node["error"]["exit"]) for node in done.objects[0]["nodes"]]
    assert states == [("ready", None), ("unfit", 8), ("unreachable", 4)]
    hosts.heal("node2")
    assert hosts.with_inventory(inventory, "nodes").code == 4


def test_nodes_with_a_job_shows_the_hosts_of_that_job(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("two", STAY + "roles: {worker: 2}\n"))
    found = hosts("nodes", "-j", "two", "-o", "json").objects[0]["nodes"]
    assert [node["host"] for node in found] == ["node1", "node2"]
    done = hosts("nodes", "-j", "three")
    assert (done.code, done.err) == (0, "no host that answers runs tasks of three\n")


def test_nodes_shows_who_holds_each_gpu(hosts: Hosts) -> None:
    rows = [f"{card}, GPU-{card}{card}, 00000000:0{card}:00.0, 23034 MiB, [N/A], NVIDIA L4" for card in (1, 2)]
    recording = {"gpus": "\n".join(["index, uuid, pci.bus_id, memory.total [MiB], mig.mode.current, name", *rows])}
    (hosts.trees["node1"] / "smi.json").write_text(json.dumps(recording))
    program = hosts.trees["node1"] / "usr/bin/nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {SMI} {hosts.trees["node1"] / "smi.json"} "$@"\n')
    program.chmod(0o755)
    hosts.ok("start", hosts.file("computes", STAY + "roles: {worker: {replicas: 1, hosts: node1, gpus: 1}}\n"))
    tables = hosts.ok("nodes").split("\n\n")
    assert [("1 of 2 free" in line, "none" in line) for line in tables[0].splitlines()[1:3]] == [
        (True, False),
        (False, True),
    ]
    assert [re.split(r"\s{2,}", line)[-1] for line in tables[1].splitlines()] == [
        "HELD BY",
        "job computes, task worker/0",
        "free",
    ]


def test_ranges_joins_consecutive_ports() -> None:
    assert ranges([]) == ""
    assert ranges([2230, 2223, 2222, 2224]) == "2222-2224 2230"
