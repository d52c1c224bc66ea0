"""A GPU that is on the PCI bus and that nvidia-smi does not show is a fault, unless the inventory expects fewer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.provision.test_gpu import decided, gpu_facts
from tfctl import schema
from tfctl.provision.decide import readings, reboot
from tfctl.provision.decide.facts import Device, GpuFacts
from tfctl.provision.decide.reboot import Control, DriverState

QUERY = "uuid,pci.bus_id,compute_cap,driver_version,mig.mode.current,persistence_mode,name"
SLOTS = [f"0000:{number:02x}:00.0" for number in range(10, 18)]
LOG = "NVRM: Xid (PCI:0000:0a:00): 79, GPU has fallen off the bus."
#: A host with eight A100, whose driver and fabric manager fit.
HOST: dict[str, Any] = {
    "devices": ["20b2"] * 8, "switches": 6, "loaded": "580.95.05", "version": "580.95.05", "own": True,
    "origins": ["canonical"], "persistence": True, "fabric_manager": "580.95.05",
}  # fmt: skip


def smi(*slots: str) -> list[str]:
    return [
        f"GPU-{slot}, 0000{slot.upper()}, 8.0, 580.95.05, Disabled, Enabled, NVIDIA A100-SXM4-80GB" for slot in slots
    ]


def lost(shown: list[str], log: str = LOG) -> list[dict[str, str]]:
    gpus = [readings.gpu_of(QUERY, line) for line in shown]
    found = readings.lost([Device(slot, "20b2") for slot in SLOTS], gpus, log)
    return [{"slot": each.slot, "reason": each.reason} for each in found]


def host(*slots: str, failure: str = "No") -> dict[str, Any]:
    """Return a host on which nvidia-smi shows these cards. ``failure``: whether their memory could not be repaired."""
    shown = smi(*slots)
    known = {"smi": [f"{failure}, {line}" for line in shown], "smi_query": f"remapped_rows.failure,{QUERY}"}
    return {"system": "ubuntu-22.04", "gpu": {**HOST, **known, "lost": lost(shown)}}


def test_a_missing_gpu_is_named_by_its_address_with_what_the_kernel_says() -> None:
    _, faults = decided(host(*SLOTS[1:]))
    (fault,) = faults
    assert fault["message"] == (f"8 GPUs are on the PCI bus, and nvidia-smi shows 7: 0000:0a:00.0 is missing ({LOG})")
    assert "tfctl_gpus_expected" in fault["remedy"] and fault["kind"] == "unfit"


def test_a_host_with_all_its_gpus_has_no_fault() -> None:
    assert decided(host(*SLOTS))[1] == []


@pytest.mark.parametrize(
    ("expected", "shown", "message"),
    [
        (8, SLOTS, ""),
        (7, SLOTS[1:], ""),
        (8, SLOTS[1:], f"tfctl_gpus_expected is 8, and nvidia-smi shows 7: 0000:0a:00.0 is missing ({LOG})"),
        (9, SLOTS, "tfctl_gpus_expected is 9, and nvidia-smi shows 8"),
    ],
)
def test_the_inventory_says_how_many_gpus_a_host_has(expected: int, shown: list[str], message: str) -> None:
    _, faults = decided({**host(*shown), "preferences": {"gpus_expected": expected}})
    assert [fault["message"] for fault in faults] == ([message] if message else [])


def test_expected_gpus_are_missed_before_a_driver_is_installed() -> None:
    found = {"system": "debian-12", "gpu": {"devices": ["20b2"] * 7}, "preferences": {"gpus_expected": 8}}
    assert "tfctl_gpus_expected is 8, and 7 are on the PCI bus" in [each["message"] for each in decided(found)[1]]
    none = {"system": "debian-12", "gpu": None, "preferences": {"gpus_expected": 8}}
    messages = [each["message"] for each in decided(none)[1]]
    assert messages == ["tfctl_gpus_expected is 8, and no NVIDIA GPU is on the PCI bus"]


@pytest.mark.parametrize(("expected", "works"), [(0, False), (8, False), (7, True)])
def test_check_after_an_installation_names_a_missing_gpu(expected: int, works: bool) -> None:
    facts = schema.parse(GpuFacts, gpu_facts(host(*SLOTS[1:])["gpu"], "ubuntu-22.04"))
    found = reboot.judge(facts, DriverState(facts, (), "m1", "b1"), Control("m0", "b0", local=False), expected)
    assert ("0000:0a:00.0 is missing" in found.problem) != works
    assert (found.problem == "") == works


def test_an_nvidia_smi_that_shows_nothing_is_another_fault() -> None:
    assert lost([]) == []


def test_a_defective_gpu_is_a_notice() -> None:
    decision, faults = decided(host(*SLOTS[:8], failure="Yes"))
    assert faults == []
    assert decision["notices"][0] == (
        f"no task gets GPU GPU-{SLOTS[0]}: a defective row of its memory could not be replaced: have the card exchanged"
    )
    assert decided(host(*SLOTS))[0]["notices"] == []


@pytest.mark.parametrize("preferences", [{}, {"driver": "none"}])
def test_a_slow_gpu_is_a_notice_whoever_maintains_the_driver(preferences: dict[str, str]) -> None:
    found = host(*SLOTS)
    found["gpu"]["smi"] = [f"0x0000000000000048, {line}" for line in smi(*SLOTS)]
    found["gpu"]["smi_query"] = f"clocks_event_reasons.active,{QUERY}"
    decision, faults = decided({**found, "preferences": preferences})
    assert faults == []
    slow = [text for text in decision["notices"] if "too hot" in text]
    assert slow[0].startswith(f"GPU GPU-{SLOTS[0]}: the hardware reduces its clocks") and len(slow) == len(SLOTS)


@pytest.mark.parametrize(
    ("loaded", "driven"), [("580.95.05", ["20b2"]), ("470.256.02", ["20b2", "1287"]), ("", ["20b2", "1287"])]
)
def test_a_card_that_is_too_old_for_the_driver_is_not_missed(loaded: str, driven: list[str]) -> None:
    """1287: a GeForce GT 730, of Kepler, beside an A100."""
    found = [Device("0000:0a:00.0", "20b2"), Device("0000:0b:00.0", "1287")]
    assert [device.id for device in readings.driven(found, loaded)] == driven
