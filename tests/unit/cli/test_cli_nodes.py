"""`tfctl nodes`: its tables, and the command that repairs what was changed by hand."""

from __future__ import annotations

import re

from tfctl.cli.nodes import drift_message, table
from tfctl.errors import Unreachable
from tfctl.jobs.nodes import NodeState
from tfctl.model.host import Host, Ssh
from tfctl.node import wire

CHANGED = "changed since it was provisioned"


def test_drift_of_a_role_that_each_run_has_is_repaired_by_a_run() -> None:
    drifts = [f"/etc/tfctl/node.json {CHANGED}"]
    assert drift_message("node1", drifts).endswith("\n  → tfctl provision INVENTORY --limit node1")


def test_drift_of_the_packages_of_jobs_is_repaired_with_their_requirements_file() -> None:
    drifts = [f"/etc/tfctl/node.json {CHANGED}", f"/opt/tfctl/requirements/0123456789ab/pandas/__init__.py {CHANGED}"]
    expected = "\n  → tfctl provision INVENTORY --limit node1 --requirements FILE"
    assert drift_message("node1", drifts).endswith(expected)


def test_each_cell_is_below_its_heading_and_those_of_a_host_that_does_not_answer_are_empty() -> None:
    card = wire.Card("GPU-1", "A100", persistence=True, ecc_errors=2, mhz=1410, celsius=40, mig=())
    node = wire.Node(
        protocol=1, version="0123456789ab", os="Debian", kernel="6.1", systemd=252, cpus=8, load=0.5, memory_mib=None,
        stacks={"tf2.15": "tf2.15-0123456789"}, gpus=(), gpu_trouble=None, ports={2222: "a", 2223: "a"},
        tasks=(wire.RunningTask("digits", "worker", 0, "running"),), stored_mib=512, cards=(card,),
    )  # fmt: skip
    answers = NodeState(Host("node1", Ssh("node1")), node, "0123456789ab")
    silent = NodeState(Host("node2", Ssh("node2")), None, "0123456789ab", Unreachable("node2: no answer"))
    hosts, cards = table([answers, silent]).split("\n\n")
    heading, row, empty = hosts.splitlines()
    cells = {
        "STATE": "ready", "OS": "Debian", "SYSTEMD": "252", "PART": "01234567", "STACKS": "tf2.15-01234567",
        "CPUS": "8", "LOAD": "0.5", "CODE": "0.5 GiB", "GPUS": "none", "PORTS": "2222-2223",
        "TASKS": "digits: worker/0",
    }  # fmt: skip
    begins = {word[0]: word.start() for word in re.finditer(r"\S+", heading)}
    for name, cell in cells.items():
        assert row[begins[name] :].startswith(cell), name
    assert empty == "node2  unreachable"
    assert [re.split("  +", line) for line in cards.splitlines()] == [
        ["HOST", "CARD", "MIG", "ECC", "PERSISTENCE", "CLOCK", "TEMP", "POWER"],
        ["node1", "A100", "no instances", "-, 2 errors", "on", "1410 of ? MHz", "40 °C", "-"],
    ]
