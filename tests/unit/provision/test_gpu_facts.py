"""The GPU facts of a host, from a directory tree with /sys and /proc and from fakes of the real programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import tfctl_gpu_facts

from tests.unit.provision.test_gpu import BARE
from tfctl import schema
from tfctl.provision.decide.cards import cards
from tfctl.provision.decide.facts import GpuFacts

PROPRIETARY = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22-I3-AE18)\n"
NVIDIAS = "NVIDIA <cudatools@nvidia.com>"


class FakeHost:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.bin = root / "root", root / "bin"
        self.bin.mkdir()
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        for name in ("dpkg-query", "dkms", "mokutil", "rpm"):
            self.program(name, "exit 2")
        self.program("systemd-detect-virt", "echo none; exit 1")

    def put(self, path: str, text: str | bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())

    def device(self, slot: str, device: str, pci_class: str, vendor: str = "10de") -> None:
        for name, text in (("vendor", vendor), ("device", device), ("class", pci_class)):
            self.put(f"sys/bus/pci/devices/{slot}/{name}", f"0x{text}\n")

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def packages(self, *rows: str) -> None:
        """Set the rows `status name version maintainer` that dpkg-query prints."""
        lines = ["\t".join([f"{row.split()[0]} ", *row.split(" ", 3)[1:]]) for row in rows]
        (self.bin / "rows").write_text("".join(f"{line}\n" for line in lines))
        self.program("dpkg-query", f"cat {self.bin}/rows; exit 1")

    def look(self) -> Any:
        return tfctl_gpu_facts.look(self.root)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return FakeHost(tmp_path, monkeypatch)


def test_gpu_facts_run_no_program_on_a_host_without_a_gpu(fake: FakeHost) -> None:
    fake.device("0000:00:1f.0", "1234", "060100", vendor="8086")
    for name in ("nvidia-smi", "dpkg-query", "rpm", "systemd-detect-virt"):
        fake.program(name, f"touch {fake.bin}/asked")
    assert fake.look() is None
    assert not (fake.bin / "asked").exists()


def test_gpu_facts_describe_a_host_with_a_driver(fake: FakeHost) -> None:
    fake.device("0000:17:00.0", "2330", "030200")
    fake.device("0000:18:00.0", "22a3", "068000")
    fake.device("0000:19:00.0", "22ba", "040300")  # the audio device of a card
    fake.put("proc/driver/nvidia/version", OPEN)
    fake.put("proc/31/comm", "python3\n")
    fake.put("proc/32/comm", "nvidia-persiste\n")
    for pid in ("31", "32"):
        (fake.root / f"proc/{pid}/fd").mkdir()
        (fake.root / f"proc/{pid}/fd/5").symlink_to("/dev/nvidia0")
    fake.program("nvidia-smi", 'echo "GPU-1, NVIDIA H100 80GB HBM3, 9.0, 580.65.06, Disabled"')
    fake.packages(
        f"ii libnvidia-compute-580 580.65.06-0ubuntu1 {NVIDIAS}",
        f"hi nvidia-open-580 580.65.06-0ubuntu1 {NVIDIAS}",
        f"ii nvidia-fabricmanager-580 580.65.06-1 {NVIDIAS}",
        f"hi libnvidia-container1 1.17.8-1 {NVIDIAS}",
        "rc nvidia-headless-535 535.1-0ubuntu1 Ubuntu Core Developers <x@ubuntu.com>",
    )
    fake.put("etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    seen = fake.look()
    assert [card.name for card in cards(schema.parse(GpuFacts, seen))] == ["H100 SXM5 80GB"]
    assert (seen["switches"], seen["loaded"], seen["fabric_manager"]) == (1, "580.65.06", "580.65.06")
    assert (seen["version"], seen["origins"], seen["held"]) == ("580.65.06", ["nvidia"], ["nvidia-open-580"])
    assert seen["processes"] == [{"pid": 31, "name": "python3"}]
    assert (seen["unattended"], seen["container"], seen["own"]) == (True, "", False)
    assert seen["smi"]["gpus"][0]["uuid"] == "GPU-1"
    assert set(seen) == {*BARE, "smi", "kernel"}, "test_gpu.BARE must have the same keys"


@pytest.mark.parametrize(
    ("maintainer", "origin"),
    [
        ("Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>", "debian"),
        ("Ubuntu Core Developers <ubuntu-devel-discuss@lists.ubuntu.com>", "canonical"),
        ("NVIDIA <cudatools@nvidia.com>", "nvidia"),
        ("RPM Fusion (none)", "rpmfusion"),
        ("somebody", "unknown"),
    ],
)
def test_package_origin_is_derived_from_its_maintainer(maintainer: str, origin: str) -> None:
    assert tfctl_gpu_facts.maker(maintainer) == origin


def test_gpu_facts_keep_the_error_of_nvidia_smi_when_the_driver_is_broken(fake: FakeHost) -> None:
    fake.device("0000:17:00.0", "20b5", "030200")
    fake.put("proc/driver/nvidia/version", PROPRIETARY)
    fake.program(
        "nvidia-smi",
        "echo 'Failed to initialize NVML: Driver/library version mismatch';"
        "echo 'NVML library version: 535.183'; exit 18",
    )
    seen = fake.look()
    assert (seen["loaded"], seen["smi"]["gpus"]) == ("535.161.07", [])
    assert "version mismatch NVML library" in seen["smi"]["said"]


def test_gpu_facts_stop_waiting_when_nvidia_smi_hangs(fake: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.device("0000:17:00.0", "20b5", "030200")
    fake.put("proc/driver/nvidia/version", PROPRIETARY)
    fake.program("nvidia-smi", "exec sleep 60")
    monkeypatch.setattr(tfctl_gpu_facts, "LIMIT_S", 0.5)
    assert fake.look()["smi"] == {"said": "nvidia-smi does not answer", "gpus": []}


def test_gpu_facts_query_fewer_fields_when_nvidia_smi_is_old(fake: FakeHost) -> None:
    fake.device("0000:17:00.0", "128b", "030000")
    fake.put("proc/driver/nvidia/version", PROPRIETARY.replace("535.161.07", "470.57.02"))
    fake.program(
        "nvidia-smi",
        "case $1 in *compute_cap*) echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2;; esac;"
        "echo 'GPU-2, NVIDIA GeForce GT 710, 470.57.02'",
    )
    assert fake.look()["smi"]["gpus"][0] == {
        "uuid": "GPU-2", "name": "NVIDIA GeForce GT 710", "capability": "", "driver": "470.57.02", "mig": False,
    }  # fmt: skip


def test_gpu_facts_report_secure_boot_and_whether_the_dkms_key_is_enrolled(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "28a0", "030000")
    fake.put(tfctl_gpu_facts.SECURE_BOOT, b"\x06\x00\x00\x00\x01")
    fake.put("var/lib/dkms/mok.pub", "key")
    fake.program("mokutil", 'echo "$2 is not enrolled"; exit 0')
    seen = fake.look()
    assert (seen["secure_boot"], seen["mok"]) == (True, False)
    fake.program("mokutil", 'echo "$2 is already enrolled"; exit 1')
    assert fake.look()["mok"] is True
    fake.put(tfctl_gpu_facts.SECURE_BOOT, b"\x06\x00\x00\x00\x00")
    assert fake.look()["secure_boot"] is False


def test_gpu_facts_recognise_a_driver_from_a_run_installer(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.put("usr/bin/nvidia-uninstall", "")
    fake.put("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.14", "")
    fake.program("systemd-detect-virt", "echo lxc")
    seen = fake.look()
    assert (seen["origins"], seen["version"], seen["container"]) == (["run"], "550.54.14", "lxc")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("nvidia, 470.57.02, 5.10.0-8-amd64, x86_64: installed", ("470.57.02", "5.10.0-8-amd64", "installed")),
        ("nvidia-current/535.183.01, 6.1.0-18-amd64, x86_64: installed (WARNING! Diff between built and installed",
         ("535.183.01", "6.1.0-18-amd64", "installed")),
        ("nvidia/580.65.06: added", ("580.65.06", "", "added")),
    ],
)  # fmt: skip
def test_dkms_status_is_parsed_in_both_formats(line: str, found: tuple[str, ...]) -> None:
    seen = tfctl_gpu_facts.dkms(f"virtualbox/7.0, 6.1.0-18-amd64, x86_64: installed\n{line}\n")
    assert [tuple(each.values()) for each in seen] == [found]


def test_gpu_facts_read_the_vendor_of_rpm_packages(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.program("dpkg-query", "exit 127")
    fake.program(
        "rpm",
        "printf 'nvidia-driver-cuda-libs\\t3:580.65.06-1.el9\\tNVIDIA Corporation (none)\\n"
        "kmod-nvidia-open-dkms\\t3:580.65.06-1.el9\\tNVIDIA Corporation (none)\\n'",
    )
    seen = fake.look()
    assert (seen["version"], seen["origins"]) == ("580.65.06", ["nvidia"])


def test_gpu_facts_ignore_holds_by_tfctl_and_report_packages_that_drifted(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.put("var/lib/tfctl/held.json", json.dumps({"nvidia_driver": {"libcuda1": "535.1-1", "nvidia-smi": "535.1-1"}}))
    fake.packages("hi libcuda1 535.1-1 Debian NVIDIA <x>", "hi nvidia-smi 535.1-1 Debian NVIDIA <x>")
    seen = fake.look()
    assert (seen["own"], seen["held"], seen["drifted"]) == (True, [], [])
    fake.packages("ii libcuda1 535.1-1 Debian NVIDIA <x>", "hi nvidia-smi 535.2-1 Debian NVIDIA <x>")
    assert fake.look()["drifted"] == ["libcuda1", "nvidia-smi"]
