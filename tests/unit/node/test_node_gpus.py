"""Reading nvidia-smi: recordings of real machines, working and broken; and how a start uses the result."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from node_tree import ACCOUNT, Tree, make_plan, make_task, refused, reserve

from tfctl.local import machine
from tfctl.node import gpus, pci_gpus
from tfctl.node.system import System

HERE = Path(__file__).parent
FAKE = HERE.parents[1] / "fakes/fake_nvidia_smi.py"
RECORDED: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "nvidia_smi.yaml").read_text(encoding="utf-8"))
H100 = RECORDED["H100 with a process, driver 580.159.04, with settings and readings"]
L40S = RECORDED["L40S with two processes, driver 595.80"]
MISMATCH = RECORDED["The driver was upgraded under the kernel"]


def install(tree: Tree, recording: dict[str, Any], *, card: bool = True) -> System:
    """Install the nvidia-smi of a recorded host in the tree, and put an NVIDIA card on its bus."""
    (tree / "nvidia-smi.json").write_text(json.dumps(recording))
    program = tree / "usr/bin/nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} {tree / "nvidia-smi.json"} "$@"\n')
    program.chmod(0o755)
    for bus in buses(recording):
        put_card(tree, bus, "0x10de" if card else "0x1002")
    return System(prefix=str(tree.path), account=ACCOUNT, nvidia_smi=(str(program),))


def buses(recording: dict[str, Any]) -> list[str]:
    """Return the addresses of the recorded cards, as the kernel writes them."""
    shown = re.findall(r"\b(?:0000)?([0-9A-F]{4}:[0-9A-F]{2}:[0-9A-F]{2}\.0)", recording.get("gpus", ""))
    return [bus.lower() for bus in shown] or ["0000:17:00.0"]


def put_card(tree: Tree, bus: str, vendor: str = "0x10de") -> Path:
    slot = tree / f"sys/bus/pci/devices/{bus}"
    slot.mkdir(parents=True, exist_ok=True)
    for name, text in {"vendor": vendor, "class": "0x030200", "device": "0x2330"}.items():
        (slot / name).write_text(f"{text}\n")
    return slot


@pytest.mark.parametrize("name", [name for name, case in RECORDED.items() if "devices" in case])
def test_gpus_of_a_recorded_host_are_listed(tree: Tree, name: str) -> None:
    case = RECORDED[name]
    seen = gpus.look(install(tree, case))
    assert (seen.trouble, seen.missing, seen.cards) == (None, (), len(buses(case)))
    assert [[d.index, d.uuid, d.name, d.memory_mib] for d in seen.devices] == case["devices"]
    # Whose process it is stands behind, where a process of that number runs here.
    busy = {d.uuid: d.holder.partition(" of ")[0] for d in seen.devices if d.holder}
    assert busy == {uuid: f"pid {who}" for uuid, who in case.get("busy", {}).items()}


@pytest.mark.parametrize("name", [name for name, case in RECORDED.items() if "cards" in case])
def test_settings_and_readings_of_cards_are_listed(tree: Tree, name: str) -> None:
    case = RECORDED[name]
    assert [list(card[:-1]) for card in gpus.cards(install(tree, case))] == [
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
    assert gpus.look(install(tree, MISMATCH, card=False)) == gpus.Seen(cards=0)


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


#: Lines of the kernel's log. Those of the Xid are from NVIDIA's documentation, docs.nvidia.com/deploy/xid-errors; the
#: failed initialisation is from github.com/NVIDIA/gpu-operator, issue 1146.
KERNEL_LOG = """\
nvidia 0000:0a:00.0: enabling device (0000 -> 0002)
NVRM: GPU at PCI:0000:0a:00: GPU-5f0e8a0c-0001
NVRM: Xid (PCI:0000:0a:00): 79, GPU has fallen off the bus.
NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x24:0x72:1568)
NVRM: GPU 0000:1b:00.0: rm_init_adapter failed, device minor number 1
NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05
"""


def with_log(tree: Tree, system: System, log: str) -> System:
    """Return the system with a fake of journalctl that prints the log of the kernel, and of nothing else."""
    (tree / "log").write_text(log)
    (tree / "journalctl").write_text(f'#!/bin/sh\ncase "$*" in *--dmesg*) cat {tree / "log"} ;; *) exit 1 ;; esac\n')
    (tree / "journalctl").chmod(0o755)
    return system._replace(journalctl=(str(tree / "journalctl"),))


def test_a_gpu_that_nvidia_smi_does_not_show_is_named_with_what_the_kernel_said(tree: Tree) -> None:
    system = with_log(tree, install(tree, L40S), KERNEL_LOG)
    for bus in ("0000:0a:00.0", "0000:1b:00.0", "0000:1c:00.0"):
        put_card(tree, bus)
    seen = gpus.look(system)
    assert seen.trouble is None and len(seen.devices) == seen.cards == 1
    assert [tuple(each) for each in seen.missing] == [
        ("0000:0a:00.0", "NVRM: Xid (PCI:0000:0a:00): 79, GPU has fallen off the bus."),
        ("0000:1b:00.0", "NVRM: GPU 0000:1b:00.0: rm_init_adapter failed, device minor number 1"),
        ("0000:1c:00.0", ""),
    ]


def test_a_gpu_of_a_virtual_machine_is_not_missing(tree: Tree) -> None:
    slot = put_card(tree, "0000:0a:00.0")
    (slot / "driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")
    assert gpus.look(with_log(tree, install(tree, L40S), KERNEL_LOG)).missing == ()


@pytest.mark.parametrize(
    ("capability", "vgpu"),
    [(b"\x09\x00\x10VF\x00", True), (b"\x09\x00\x10XX\x00", False), (b"\x01\x00\x10VF\x00", False)],
)
def test_a_gpu_that_a_hypervisor_made_is_recognized(tree: Tree, capability: bytes, vgpu: bool) -> None:
    """A capability that points to itself does not hang it."""
    slot = put_card(tree, "0000:0a:00.0")
    head = bytearray(0x40)
    head[0x34] = 0x40
    for config in (head + b"\x11\x48\x00\x00\x00\x00\x00\x00" + capability, head + b"\x10\x40" + bytes(20)):
        (slot / "config").write_bytes(config)
        found = pci_gpus.is_vgpu(tree / "sys/bus/pci", "0000:0a:00.0")
        assert found == (vgpu and config.endswith(capability))


def test_a_container_has_only_the_gpus_that_it_was_given(tree: Tree) -> None:
    system = with_log(tree, install(tree, L40S), KERNEL_LOG)
    put_card(tree, "0000:0a:00.0")
    (tree / "run/systemd").mkdir(parents=True, exist_ok=True)
    (tree / "run/systemd/container").write_text("lxc\n")
    assert gpus.look(system).missing == ()


def test_missing_gpus_are_reported_when_the_log_cannot_be_read(tree: Tree) -> None:
    system = install(tree, L40S)._replace(journalctl=("/nowhere/journalctl",))
    put_card(tree, "0000:0a:00.0")
    assert [tuple(each) for each in gpus.look(system).missing] == [("0000:0a:00.0", "")]


def with_columns(recording: dict[str, Any], **more: str) -> dict[str, Any]:
    """Return the recording with more columns for each card, which the drivers know and nobody has recorded."""
    head, *rows = recording["gpus"].splitlines()
    columns = [", ".join([head, *more]), *(", ".join([row, *more.values()]) for row in rows)]
    return {**recording, "gpus": "\n".join(columns)}


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("remapped_rows.failure", "Yes", "could not be replaced"),
        ("remapped_rows.pending", "1", "is replaced at the next reset"),
        ("retired_pages.pending", "Yes", "is retired at the next reset"),
        ("remapped_rows.failure", "No", ""),
        ("remapped_rows.failure", "0", ""),
        ("retired_pages.pending", "[N/A]", ""),
    ],
)
def test_a_card_with_defective_memory_is_held_by_its_defect(tree: Tree, column: str, value: str, said: str) -> None:
    columns = {"remapped_rows.failure": "0", "remapped_rows.pending": "0", "retired_pages.pending": "No", column: value}
    idle = {**L40S, "users": "gpu_uuid, pid, process_name"}
    (device,) = gpus.look(install(tree, with_columns(idle, **columns))).devices
    assert said in (device.defect or "") and said in device.holder
    assert (device.defect is None, device.holder == "") == (not said, not said)


OWN_LIMITS = "0x0000000000000007"  # idle, the clocks of an application, and the power limit


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, []),
        ({"clocks_event_reasons.active": OWN_LIMITS}, []),
        ({"clocks_event_reasons.active": "0x0000000000000048"}, ["too hot"]),
        ({"clocks_event_reasons.active": "0x0000000000000088"}, ["power brake"]),
        ({"clocks_event_reasons.active": "0x0000000000000008"}, ["if this lasts"]),
        ({"clocks_throttle_reasons.active": "0x0000000000000040"}, ["too hot"]),
        ({"clocks_event_reasons.active": "[N/A]"}, []),
        ({"ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "Yes"}, ["field diagnostic"]),
        ({"ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "No"}, []),
        ({"ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "[N/A]"}, []),
    ],
)
def test_errors_and_slow_clocks_of_a_card_are_noticed_and_tasks_get_it_nevertheless(
    tree: Tree, columns: dict[str, str], said: list[str]
) -> None:
    """A driver that does not know the other fields does not matter."""
    idle = {**H100, "users": "gpu_uuid, pid, process_name"}
    system = install(tree, with_columns(idle, **columns))
    (card,) = gpus.cards(system)
    assert [word in notice for word, notice in zip(said, card.notices, strict=True)] == [True] * len(said)
    (device,) = gpus.look(system).devices
    assert (device.holder, device.defect) == ("", None)


@pytest.mark.parametrize(
    ("count", "noticed"), [("0", False), ("2", True), ("[N/A]", False), ("[Not Supported]", False)]
)
def test_uncorrected_errors_of_the_memory_are_counted(tree: Tree, count: str, noticed: bool) -> None:
    recording = {**H100, "gpus": H100["gpus"].replace("Enabled, Enabled, 0,", f"Enabled, Enabled, {count},")}
    (card,) = gpus.cards(install(tree, recording))
    assert [f"{count} errors since the last reset" in notice for notice in card.notices] == [True] * noticed


def test_no_task_gets_a_defective_gpu(tree: Tree) -> None:
    idle = {**L40S, "users": "gpu_uuid, pid, process_name"}
    install(tree, with_columns(idle, **{"remapped_rows.failure": "Yes", "remapped_rows.pending": "No"}))
    with tree.session("start", job="digits", code=None, ports=[2222, 2222], resolve=[]) as session:
        (gpu,) = session.expect("hello")["gpus"]
        assert "could not be replaced" in gpu["defect"]
        error = refused(session, make_plan(make_task(gpus=[gpu["uuid"]])))
        assert error["exit"] == 5 and "could not be replaced" in error["message"]


@pytest.mark.parametrize(
    ("shown", "bus"),
    [("00000000:0A:00.0", "0000:0a:00.0"), ("0000:0a:00.0", "0000:0a:00.0"), ("00010000:3B:00.0", "10000:3b:00.0")],
)
def test_addresses_of_nvidia_smi_are_those_of_the_kernel(shown: str, bus: str) -> None:
    assert pci_gpus.bus_of(shown) == bus
    assert pci_gpus.missing([bus], [shown]) == []


@given(st.text(alphabet=", 0123456789GPUMIG-:.\n[]N/ADisabledE%", max_size=300))
def test_any_output_of_nvidia_smi_is_read_or_refused_in_a_sentence(text: str) -> None:
    gpus.parse_users(text), gpus.parse_instances(text), gpus.parse_places(text)
    try:
        assert gpus.parse_cards(text)
    except gpus.GpuFault as fault:
        assert fault.message
