"""Reading nvidia-smi: recordings of real machines, working and broken; and how a start uses the result."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from node_tree import ACCOUNT, Tree, make_plan, make_task, refused, reserve

from tfctl.local import machine
from tfctl.node import gpus
from tfctl.node.system import System

HERE = Path(__file__).parent
FAKE = HERE.parents[1] / "fakes/fake_nvidia_smi.py"
RECORDED: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "nvidia_smi.yaml").read_text(encoding="utf-8"))
L40S = RECORDED["L40S with two processes, driver 595.80"]
MISMATCH = RECORDED["The driver was upgraded under the kernel"]


def install(tree: Tree, recording: dict[str, Any], *, card: bool = True) -> System:
    """Install the nvidia-smi of a recorded host in the tree, and put an NVIDIA card on its bus."""
    (tree / "nvidia-smi.json").write_text(json.dumps(recording))
    program = tree / "usr/bin/nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} {tree / "nvidia-smi.json"} "$@"\n')
    program.chmod(0o755)
    slot = tree / "sys/bus/pci/devices/0000:17:00.0"
    slot.mkdir(parents=True, exist_ok=True)
    (slot / "vendor").write_text("0x10de\n" if card else "0x1002\n")
    (slot / "class").write_text("0x030200\n")
    return System(prefix=str(tree.path), account=ACCOUNT, nvidia_smi=(str(program),))


@pytest.mark.parametrize("name", [name for name, case in RECORDED.items() if "devices" in case])
def test_gpus_of_a_recorded_host_are_listed(tree: Tree, name: str) -> None:
    case = RECORDED[name]
    seen = gpus.look(install(tree, case))
    assert seen.trouble is None
    assert [[d.index, d.uuid, d.name, d.memory_mib] for d in seen.devices] == case["devices"]
    # Whose process it is stands behind, where a process of that number runs here.
    busy = {d.uuid: d.holder.partition(" of ")[0] for d in seen.devices if d.holder}
    assert busy == {uuid: f"pid {who}" for uuid, who in case.get("busy", {}).items()}


@pytest.mark.parametrize("name", [name for name, case in RECORDED.items() if "cards" in case])
def test_settings_and_readings_of_cards_are_listed(tree: Tree, name: str) -> None:
    case = RECORDED[name]
    assert [list(card) for card in gpus.cards(install(tree, case))] == [
        [*card[:-1], None if card[-1] is None else tuple(card[-1])] for card in case["cards"]
    ]


def test_cards_whose_readings_are_unknown_are_not_listed(tree: Tree) -> None:
    assert gpus.cards(install(tree, L40S)) == ()
    assert gpus.cards(install(tree, MISMATCH)) == ()


@pytest.mark.parametrize("name", [name for name, case in RECORDED.items() if "fault" in case])
def test_recorded_errors_become_a_sentence_with_a_remedy(tree: Tree, name: str) -> None:
    case = RECORDED[name]
    seen = gpus.look(install(tree, case))
    assert seen.devices == ()
    assert seen.trouble
    assert case["fault"] in seen.trouble.message
    assert case["remedy"] in seen.trouble.remedy


def test_every_recording_names_its_source_and_expects_one_thing() -> None:
    assert all(case["source"] for case in RECORDED.values())
    assert all(("devices" in case) != ("fault" in case) for case in RECORDED.values())


@pytest.mark.parametrize("name", [name for name, case in RECORDED.items() if case.get("list") and case.get("devices")])
def test_a_local_run_sees_the_same_devices(name: str) -> None:
    case = RECORDED[name]
    assert sorted(machine.gpus_in(case["list"])) == sorted(device[1] for device in case["devices"])


def test_host_without_a_card_reports_no_gpu_trouble_when_nvidia_smi_fails(tree: Tree) -> None:
    """For example a virtual machine whose image contains the driver."""
    assert gpus.look(install(tree, MISMATCH, card=False)) == gpus.Seen()


def test_a_driver_that_hangs_does_not_hang_the_start(tree: Tree) -> None:
    seen = gpus.look(install(tree, {**L40S, "hang": True})._replace(nvidia_smi_timeout=1.0))
    assert seen.trouble
    assert "ran longer than 1 s and was killed" in seen.trouble.message


def test_gpu_listing_names_the_user_of_the_process_that_holds_a_gpu(tree: Tree) -> None:
    users = f"gpu_uuid, pid, process_name\n{L40S['devices'][0][1]}, {os.getpid()}, python3\n"
    [device] = gpus.look(install(tree, {**L40S, "users": users})).devices
    import pwd

    assert device.holder == f"pid {os.getpid()} (python3) of {pwd.getpwuid(os.getuid()).pw_name}"


def test_gpu_trouble_is_reported_in_hello_and_refuses_only_tasks_with_gpus(tree: Tree) -> None:
    install(tree, MISMATCH)
    with tree.session("start", job="digits", code=None, ports=[2222, 2222], resolve=[]) as session:
        hello = session.expect("hello")
        assert hello["gpus"] == []
        assert (hello["gpu_trouble"]["exit"], MISMATCH["fault"] in hello["gpu_trouble"]["message"]) == (8, True)
        error = refused(session, make_plan(make_task(gpus=["GPU-1"])))
        assert (error["exit"], MISMATCH["fault"] in error["message"]) == (8, True)
    with tree.start() as session:
        reserve(session, make_plan())


def test_mig_instances_with_names_of_old_drivers_can_be_reserved(tree: Tree) -> None:
    case = RECORDED["A100 with the MIG UUIDs of drivers before 470"]
    install(tree, case)
    first, second = (device[1] for device in case["devices"])
    tree.run(make_plan(make_task(gpus=[first])))
    with tree.session("start", job="other", code=None, ports=[2222, 2222], resolve=[]) as session:
        holders = [gpu["holder"] for gpu in session.expect("hello")["gpus"]]
        assert holders == ["job digits, task worker/0", ""]
        assert refused(session, make_plan(make_task(job="other", gpus=[first]), job="other"))["exit"] == 5
    with tree.start("other") as session:
        reserve(session, make_plan(make_task(job="other", gpus=[second]), job="other"))


@given(st.text(alphabet=", 0123456789GPUMIG-:.\n[]N/ADisabledE%", max_size=300))
def test_any_output_of_nvidia_smi_is_read_or_refused_in_a_sentence(text: str) -> None:
    gpus.parse_users(text), gpus.parse_instances(text), gpus.parse_places(text)
    try:
        assert gpus.parse_cards(text)
    except gpus.GpuFault as fault:
        assert fault.message
