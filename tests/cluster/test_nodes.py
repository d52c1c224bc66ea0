"""`tfctl nodes`: the state of every host, and which jobs hold its GPUs and ports."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence

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
        "gpu_cards", "missing_gpus", "current", "clock_offset",
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
    assert head == ["HOST", "STATE", "TROUBLE", "CPUS", "LOAD", "FREE MEM", "FREE DISK", "GPUS", "JOBS"]
    assert (row[:3], row[-2:]) == (["node1", "ready", "version"], ["none", "held"])
    head, row, *_ = (re.split(r"\s{2,}", line) for line in hosts.ok("nodes", "-o", "wide").splitlines())
    shown = dict(zip(head, row, strict=True))
    assert [shown[heading] for heading in ("OS", "SYSTEMD", "STACKS", "PORTS", "TASKS")] == [
        "Debian 12", "252", "tf2.15-ab", "23400-23402", "held: ps/0 worker/0",
    ]  # fmt: skip


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
    assert "stored_mib" not in hosts.trees["node1"].ask("nodes", brief=True)
    head, row, second_row, *_ = (re.split(r"\s{2,}", line) for line in hosts("nodes").out.splitlines())
    assert (row[head.index("FREE DISK")].endswith(" GiB"), second_row[head.index("FREE DISK")]) == (True, "0.0 GiB")
    names, cells, *_ = hosts("nodes", "-o", "wide").out.splitlines()
    disk, code = (cells[names.index(f"  {heading} ") + 2 :] for heading in ("DISK", "CODE"))
    assert (re.match(r"[\d.]+ GiB free", disk) is not None, code[:7]) == (True, "0.0 GiB"), cells


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


def put_gpus(hosts: Hosts, *shown: str, there: Sequence[str] = (), host: str = "node1", **more: str) -> None:
    """Give a host a fake nvidia-smi that shows these cards, with more fields, and put these on its PCI bus."""
    tree = hosts.trees[host]
    known = ["index", "uuid", "pci.bus_id", "memory.total [MiB]", "mig.mode.current", "name", *more]
    rows = [[card, f"GPU-{card}{card}", f"00000000:0{card}:00.0", "23034 MiB", "[N/A]", "NVIDIA L4"] for card in shown]
    recording = {"gpus": "\n".join([", ".join(known), *(", ".join([*row, *more.values()]) for row in rows)])}
    (tree / "smi.json").write_text(json.dumps(recording))
    program = tree / "usr/bin/nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {SMI} {tree / "smi.json"} "$@"\n')
    program.chmod(0o755)
    for card in there:
        slot = tree / f"sys/bus/pci/devices/0000:0{card}:00.0"
        slot.mkdir(parents=True)
        for name, text in {"vendor": "0x10de", "class": "0x030200", "device": "0x27b8"}.items():
            (slot / name).write_text(f"{text}\n")


ON_GPU = STAY + "roles: {worker: {replicas: 1, hosts: node1, gpus: 1}}\n"


def test_nodes_shows_who_holds_each_gpu(hosts: Hosts) -> None:
    put_gpus(hosts, "1", "2")
    hosts.ok("start", hosts.file("computes", ON_GPU))
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


def test_nodes_shows_what_somebody_should_look_at_of_a_gpu_that_tasks_get(hosts: Hosts) -> None:
    read = ("persistence_mode", "ecc.mode.current", "clocks.current.sm", "clocks.max.sm", "temperature.gpu")
    slow = {"ecc.errors.uncorrected.volatile.total": "3", "clocks_event_reasons.active": "0x0000000000000048"}
    put_gpus(hosts, "1", there=("1",), **dict.fromkeys((*read, "power.draw"), "[N/A]"), **slow)
    done = hosts("nodes")
    errors = "node1: GPU GPU-11: its memory has had 3 errors since the last reset that ECC could not correct"
    heat = "node1: GPU GPU-11: the hardware reduces its clocks by half or more, because it is too hot"
    assert done.code == 0 and errors in done.err and heat in done.err
    assert "1 of 1 free" in done.out


def test_nodes_and_start_name_a_gpu_that_is_missing(hosts: Hosts) -> None:
    put_gpus(hosts, "1", there=("1", "2"))
    missing = "node1: nvidia-smi does not show the GPU at 0000:02:00.0"
    done = hosts("nodes", "-o", "json")
    node1 = done.objects[0]["nodes"][0]
    assert done.code == 0 and missing in done.err and "tfctl_gpus_expected" in done.err
    assert node1["missing_gpus"] == [{"bus": "0000:02:00.0", "reason": ""}] and node1["gpu_cards"] == 1
    started = hosts("start", hosts.file("computes", ON_GPU))
    assert started.code == 0 and missing in started.err
    refused = hosts("start", hosts.file("greedy", ON_GPU.replace("gpus: 1", "gpus: 2")))
    assert refused.code == 5 and missing in refused.err


def test_inventory_says_how_many_gpus_a_host_has(hosts: Hosts) -> None:
    put_gpus(hosts, "1", there=("1", "2"))
    text, inventory = hosts.inventory.read_text(), hosts.inventory.with_name("expected.ini")
    inventory.write_text(text.replace("node1 ", "node1 tfctl_gpus_expected=1 "))
    assert "nvidia-smi" not in hosts.with_inventory(inventory, "nodes").err
    inventory.write_text(f"{text}tfctl_gpus_expected=4\n")
    said = hosts.with_inventory(inventory, "nodes").err
    assert (
        "node1: tfctl_gpus_expected is 4, and nvidia-smi shows 1; nvidia-smi does not show the GPU at 0000:02" in said
    )
    assert "node2: tfctl_gpus_expected is 4, and nvidia-smi shows 0" in said
    inventory.write_text(f"{text}tfctl_gpus_expected=many\n")
    done = hosts.with_inventory(inventory, "nodes")
    assert done.code == 3 and "tfctl_gpus_expected" in done.err and "'many' is not a number from 0 up" in done.err


def test_ranges_joins_consecutive_ports() -> None:
    assert ranges([]) == ""
    assert ranges([2230, 2223, 2222, 2224]) == "2222-2224 2230"
