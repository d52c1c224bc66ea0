"""`tfctl nodes`: its tables, and the command that repairs what was changed by hand."""

from __future__ import annotations

import re

import pytest

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


CARD = wire.Card("GPU-1", "A100", persistence=True, ecc_errors=2, mhz=1410, celsius=40, mig=())
NODE = wire.Node(
    protocol=1, version="0123456789ab", os="Debian", kernel="6.1", systemd=252, cpus=8, load=0.5,
    memory_mib=(8192, 2048), stacks={"tf2.15": "tf2.15-0123456789"}, gpus=(), gpu_trouble=None,
    ports={2222: "a", 2223: "a"}, tasks=(wire.RunningTask("digits", "worker", 0, "running"),), stored_mib=512,
    disks=(wire.Disk("/var/lib/tfctl/jobs", 1, 20480, 40960), wire.Disk("/srv/tfctl", 2, 10240, 40960)), cards=(CARD,),
)  # fmt: skip
HOST = Host("node1", Ssh("node1"))
DEFAULT = {
    "STATE": "ready", "CPUS": "8", "LOAD": "0.5", "FREE MEM": "2.0 GiB", "FREE DISK": "10.0 GiB", "GPUS": "none",
    "JOBS": "digits",
}  # fmt: skip
WIDE = {
    "OS": "Debian", "SYSTEMD": "252", "PART": "01234567", "STACKS": "tf2.15-01234567", "MEMORY": "8.0 GiB",
    "DISK": "20.0 GiB free, 10.0 GiB free in /srv/tfctl", "CODE": "0.5 GiB", "PORTS": "2222-2223",
    "TASKS": "digits: worker/0",
}  # fmt: skip


@pytest.mark.parametrize(("wide", "cells"), [(False, DEFAULT), (True, DEFAULT | WIDE)])
def test_each_cell_is_below_its_heading_and_those_of_a_host_that_does_not_answer_are_empty(
    wide: bool, cells: dict[str, str]
) -> None:
    answers = NodeState(HOST, NODE, "0123456789ab")
    silent = NodeState(Host("node2", Ssh("node2")), None, "0123456789ab", Unreachable("node2: no answer"))
    heading, row, empty = table([answers, silent], wide).text.split("\n\n")[0].splitlines()
    assert re.split("  +", heading) == ["HOST", *cells]
    begins = {word[0]: word.start() for word in re.finditer(r"\S+( \S+)*", heading)}
    for name, cell in cells.items():
        assert row[begins[name] :].startswith(cell), name
    assert empty == "node2  unreachable"


def test_the_table_of_cards_has_a_dash_for_what_a_card_does_not_have() -> None:
    cards = table([NodeState(HOST, NODE, "0123456789ab")], wide=True).text.split("\n\n")[1]
    assert [re.split("  +", line) for line in cards.splitlines()] == [
        ["HOST", "CARD", "MIG", "ECC", "PERSISTENCE", "CLOCK", "TEMP", "POWER"],
        ["node1", "A100", "no instances", "-, 2 errors", "on", "1410 of ? MHz", "40 °C", "-"],
    ]


@pytest.mark.parametrize(
    ("host", "node", "trouble"),
    [
        (HOST, NODE._replace(version="0"), "version"),
        (HOST, NODE._replace(drifts=("a", "b")), "2 changes"),
        (HOST, NODE._replace(gpu_trouble=wire.Error(1, "no answer", "")), "GPUs"),
        (HOST, NODE._replace(missing_gpus=(wire.MissingGpu("0000:02:00.0", ""),)), "GPUs"),
        (HOST, NODE._replace(cards=(CARD._replace(notices=("too hot",)),), drifts=("a",)), "1 change, GPUs"),
        (Host("node1", Ssh("node1"), gpus_expected=4), NODE._replace(gpu_cards=1), "GPUs"),
    ],
)
def test_trouble_of_a_host_is_beside_its_state(host: Host, node: wire.Node, trouble: str) -> None:
    heading, row = table([NodeState(host, node, "0123456789ab")]).text.split("\n\n")[0].splitlines()
    assert re.split("  +", heading)[:3] == ["HOST", "STATE", "TROUBLE"]
    assert re.split("  +", row)[:3] == ["node1", "ready", trouble]


@pytest.mark.parametrize(
    ("jobs", "shown"),
    [
        (("digits", "resnet"), "digits resnet"),
        (("transformer-base", "transformer-large"), "2 jobs"),
        (("a" * 40,), "a" * 40),
    ],
)
def test_jobs_of_a_host_are_shown_by_name_or_counted(jobs: tuple[str, ...], shown: str) -> None:
    tasks = tuple(wire.RunningTask(job, "worker", 0, "running") for job in jobs)
    text = table([NodeState(HOST, NODE._replace(tasks=tasks), "0123456789ab")]).text
    assert text.splitlines()[1].endswith(f"  {shown}")
