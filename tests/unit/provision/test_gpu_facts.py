"""The GPU facts of a host, from a directory tree with /sys and /proc and from fakes of the real programs."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import fake_driver
import fake_nvidia_smi
import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import gpu_facts, kernel_facts, programs, transaction
from jinja2 import Template

from tests.unit.provision.fresh_host import HOST, facts, wanted
from tfctl import schema
from tfctl.node import gpus
from tfctl.node.system import System
from tfctl.provision.decide import readings
from tfctl.provision.decide.cards import cards
from tfctl.provision.decide.facts import DkmsBuild, GpuFacts, GpuProcess, Smi, SmiGpu
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.readings import NvidiaPackage, SeenGpu, SeenSmi

PROPRIETARY = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22-I3-AE18)\n"
#: The fields of gpu_defects.FIELDS: an idle card since Ampere.
HEALTHY = "No, No, [N/A], 0, No, 0x0000000000000001, 0x0000000000000001"
NVIDIAS = "NVIDIA <cudatools@nvidia.com>"
UBUNTUS = "Ubuntu Core Developers <ubuntu-devel-discuss@lists.ubuntu.com>"


class FakeHost:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.bin = root / "root", root / "bin"
        self.bin.mkdir()
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        for name in ("dpkg-query", "dkms", "mokutil", "rpm"):
            self.program(name, "exit 2")
        self.program("systemd-detect-virt", "echo none; exit 1")
        # The real one takes half a second, and answers from the lists of this machine.
        self.program("apt-cache", "echo ' linux-libc-dev | 6.1.158-1 | https://deb.example'")

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

    def look(self) -> GpuFacts:
        return readings.gpu_facts(schema.parse(SeenGpu, gpu_facts.look(self.root)))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return FakeHost(tmp_path, monkeypatch)


def test_gpu_facts_run_no_program_on_a_host_without_a_gpu(fake: FakeHost) -> None:
    fake.device("0000:00:1f.0", "1234", "060100", vendor="8086")
    for name in ("nvidia-smi", "dpkg-query", "rpm", "systemd-detect-virt"):
        fake.program(name, f"touch {fake.bin}/asked")
    assert gpu_facts.look(fake.root) is None
    assert not (fake.bin / "asked").exists()


def test_gpu_facts_ignore_a_device_whose_vendor_is_no_number(fake: FakeHost) -> None:
    fake.device("0000:00:1f.0", "2330", "030200", vendor="none")
    fake.device("0000:00:20.0", "2330", "030200", vendor="")
    assert gpu_facts.look(fake.root) is None


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
    fake.program(
        "nvidia-smi",
        f'echo "GPU-1, 00000000:17:00.0, 9.0, 580.65.06, Disabled, Enabled, {HEALTHY}, NVIDIA H100 80GB HBM3"',
    )
    fake.packages(
        f"ii libnvidia-compute-580 580.65.06-0ubuntu1 {NVIDIAS}",
        f"hi nvidia-open-580 580.65.06-0ubuntu1 {NVIDIAS}",
        f"ii nvidia-fabricmanager-580 580.65.06-1 {NVIDIAS}",
        f"hi libnvidia-container1 1.17.8-1 {NVIDIAS}",
        "rc nvidia-headless-535 535.1-0ubuntu1 Ubuntu Core Developers <x@ubuntu.com>",
    )
    fake.put("etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    seen = fake.look()
    assert [card.name for card in cards(seen)] == ["H100 SXM5 80GB"]
    assert (seen.switches, seen.loaded, seen.fabric_manager) == (1, "580.65.06", "580.65.06")
    assert (seen.version, seen.origins, seen.held) == ("580.65.06", ("nvidia",), ("nvidia-open-580",))
    assert seen.processes == (GpuProcess(31, "python3"),)
    assert (seen.unattended, seen.container, seen.own) == (True, "", False)
    assert seen.smi.gpus[0].uuid == "GPU-1" and seen.lost == ()
    assert seen.open_module and not seen.fabric_running


def test_gpu_facts_contain_the_files_of_package_sources_that_name_nvidias_repository(fake: FakeHost) -> None:
    fake.device("0000:17:00.0", "2330", "030200")
    entry = "deb https://mirror.example/compute/cuda/repos/debian12/x86_64/ /\n"
    fake.put("etc/apt/sources.list", "deb https://deb.example/debian bookworm main\n")
    for name in ("cuda.list", "tfctl-nvidia.sources"):
        fake.put(f"etc/apt/sources.list.d/{name}", entry)
    assert fake.look().apt_sources == {"/etc/apt/sources.list.d/cuda.list": entry}


def test_gpu_facts_that_do_not_match_their_schema_are_refused_with_the_place(fake: FakeHost) -> None:
    fake.device("0000:17:00.0", "2330", "030200")
    seen = {**HOST, "gpu": {**(gpu_facts.look(fake.root) or {}), "dkms": None}}
    with pytest.raises(schema.SchemaError, match=r"^gpu/dkms: expected text, not None$"):
        readings.read(seen)


@pytest.mark.parametrize(
    ("name", "version", "maintainer", "origin"),
    [
        ("libcuda1", "535.261.03-1", "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>", "debian"),
        ("libnvidia-compute-535", "535.183.01-0ubuntu0.22.04.1", UBUNTUS, "canonical"),
        ("libnvidia-compute-470-server", "470.103.01-0ubuntu1", UBUNTUS, "canonical"),
        ("nvidia-modprobe", "510.47.03-1", "Ubuntu Developers <ubuntu-devel-discuss@lists.ubuntu.com>", "canonical"),
        ("libnvidia-compute-550", "550.54.15-0ubuntu1", UBUNTUS, "nvidia"),
        ("libnvidia-compute-580", "580.95.05-0ubuntu1", NVIDIAS, "nvidia"),
        ("cuda-drivers-550", "550.54.15-1", "cudatools <cudatools@nvidia.com>", "nvidia"),
        ("nvidia-driver-cuda-libs", "3:580.65.06-1.el9", "NVIDIA Corporation (none)", "nvidia"),
        ("xorg-x11-drv-nvidia-cuda", "3:580.95.05-1.el9", "RPM Fusion (none)", "rpmfusion"),
        ("libcuda1", "580.95.05-1", "somebody", "unknown"),
    ],
)
def test_package_origin_is_derived_from_its_maintainer_and_version(
    name: str, version: str, maintainer: str, origin: str
) -> None:
    assert readings.maker(NvidiaPackage(name, version, maintainer, "")) == origin


def test_gpu_facts_keep_the_error_of_nvidia_smi_when_the_driver_is_broken(fake: FakeHost) -> None:
    fake.device("0000:17:00.0", "20b5", "030200")
    fake.put("proc/driver/nvidia/version", PROPRIETARY)
    fake.program(
        "nvidia-smi",
        "echo 'Failed to initialize NVML: Driver/library version mismatch';"
        "echo 'NVML library version: 535.183'; exit 18",
    )
    seen = fake.look()
    assert (seen.loaded, seen.smi.gpus) == ("535.161.07", ())
    assert "version mismatch NVML library" in seen.smi.said


def test_gpu_facts_stop_waiting_when_nvidia_smi_hangs(fake: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.device("0000:17:00.0", "20b5", "030200")
    fake.put("proc/driver/nvidia/version", PROPRIETARY)
    fake.program("nvidia-smi", "exec sleep 60")
    monkeypatch.setattr(programs, "LIMIT_S", 0.5)
    assert fake.look().smi == Smi("nvidia-smi ran longer than 0.5 s and was killed", ())


@pytest.mark.parametrize(("driver", "more"), [("470.57.02", {"mig.mode.current": "Enabled"}), ("418.87", {})])
def test_gpu_facts_do_without_the_fields_alone_that_an_old_nvidia_smi_rejects(
    fake: FakeHost, driver: str, more: dict[str, str]
) -> None:
    fake.device("0000:17:00.0", "20b5", "030200")
    fake.put("proc/driver/nvidia/version", PROPRIETARY.replace("535.161.07", driver))
    known = {"name": "NVIDIA A100", "uuid": "GPU-2", "driver_version": driver, "persistence_mode": "Disabled", **more}
    recording = {"gpus": f"{', '.join(known)}\n{', '.join(known.values())}\n"}
    (fake.bin / "recording.json").write_text(json.dumps(recording))
    fake.program("nvidia-smi", f'exec {sys.executable} {fake_nvidia_smi.__file__} {fake.bin}/recording.json "$@"')
    expected = SmiGpu("GPU-2", "NVIDIA A100", capability="", driver=driver, mig=bool(more), persistence=False)
    assert fake.look().smi == Smi("", (expected,))


QUERY = ",".join(gpu_facts.FIELDS)
WARNING = "WARNING: infoROM is corrupted at gpu 0000:B3:00.0"


@pytest.mark.parametrize("said", ["{row}\n{warning}\n", "{warning}\n\n{row}\n"])
def test_gpu_of_which_nvidia_smi_warns_counts_as_working(said: str) -> None:
    """The name of a card may contain a comma."""
    name = "Quadro P4000, of a laboratory"
    row = f"GPU-1, 00000000:B3:00.0, 6.1, 535.161.07, [N/A], Enabled, {HEALTHY}, {name}"
    shown = readings.smi(SeenSmi(QUERY, 14, said.format(row=row, warning=WARNING)))
    expected = SmiGpu(
        "GPU-1", name, capability="6.1", driver="535.161.07", mig=False, persistence=True, bus="00000000:B3:00.0"
    )
    assert shown == Smi("", (expected,))


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (0, "No devices were found\n", "No devices were found"),
        (6, "No devices\nwere found\n", "No devices were found"),
        (9, "", "it printed nothing"),
        (0, "", ""),
    ],
)
def test_answer_of_nvidia_smi_without_a_gpu_is_kept_as_it_is(code: int, text: str, said: str) -> None:
    assert readings.smi(SeenSmi(QUERY, code, text)) == Smi(said, ())


@pytest.mark.extended
def test_gpu_facts_report_secure_boot_and_whether_the_dkms_key_is_enrolled(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "28a0", "030000")
    fake.put(gpu_facts.SECURE_BOOT, b"\x06\x00\x00\x00\x01")
    assert not fake.look().signing_key
    fake.put("var/lib/dkms/mok.pub", "key")
    fake.program("mokutil", 'echo "$2 is not enrolled"; exit 0')
    seen = fake.look()
    assert (seen.secure_boot, seen.mok, seen.signing_key) == (True, False, True)
    fake.program("mokutil", 'echo "$2 is already enrolled"; exit 1')
    assert fake.look().mok is True
    fake.put(gpu_facts.SECURE_BOOT, b"\x06\x00\x00\x00\x00")
    assert fake.look().secure_boot is False


def test_gpu_facts_recognise_a_driver_from_a_run_installer(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.put("usr/bin/nvidia-uninstall", "")
    fake.put("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.54.14", "")
    fake.program("systemd-detect-virt", "echo lxc")
    seen = fake.look()
    assert (seen.origins, seen.version, seen.container) == (("run",), "550.54.14", "lxc")
    assert seen.beside == () and not seen.display


def test_gpu_facts_name_the_libraries_of_packages_beside_those_of_a_run_installer(fake: FakeHost) -> None:
    """nvidia-modprobe is no library, and can be used with both."""
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.put("usr/bin/nvidia-uninstall", "")
    fake.put("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05", "")
    fake.packages(f"ii libcuda1 535.261.03-1 {DEBIANS}", f"ii nvidia-modprobe 535.161.07-1 {DEBIANS}")
    seen = fake.look()
    assert (seen.origins, seen.version, seen.beside) == (("debian", "run"), "580.95.05", ("libcuda1",))


def test_gpu_facts_recognise_a_desktop_by_its_display_manager_or_the_driver_for_x(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "2684", "030000")
    fake.packages(f"ii xserver-xorg-video-nvidia-535 535.183.01-0ubuntu0.22.04.1 {UBUNTUS}")
    assert fake.look().display
    fake.packages(f"ii libnvidia-compute-535 535.183.01-0ubuntu0.22.04.1 {UBUNTUS}")
    assert not fake.look().display
    fake.put("etc/systemd/system/graphical.target.wants/x", "")
    (fake.root / "etc/systemd/system/display-manager.service").symlink_to("/usr/lib/systemd/system/gdm.service")
    assert fake.look().display


def test_files_of_a_local_repository_are_no_driver(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.packages(f"ii nvidia-driver-local-repo-debian12-580.95.05 1.0-1 {NVIDIAS}")
    assert (fake.look().origins, fake.look().version) == ((), "")


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
    seen = readings.dkms(f"virtualbox/7.0, 6.1.0-18-amd64, x86_64: installed\n{line}\n")
    assert seen == (DkmsBuild(*found),)


def test_gpu_facts_read_the_vendor_of_rpm_packages(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.program("dpkg-query", "exit 127")
    fake.program(
        "rpm",
        "printf 'nvidia-driver-cuda-libs\\t3:580.65.06-1.el9\\tNVIDIA Corporation (none)\\n"
        "kmod-nvidia-open-dkms\\t3:580.65.06-1.el9\\tNVIDIA Corporation (none)\\n'",
    )
    seen = fake.look()
    assert (seen.version, seen.origins) == ("580.65.06", ("nvidia",))


@pytest.mark.parametrize("name", ["nvidia-fabric-manager", "nvidia-fabricmanager"])
def test_fabric_manager_is_found_by_both_names_of_its_rpm(fake: FakeHost, name: str) -> None:
    fake.device("0000:01:00.0", "2330", "030200")
    fake.program("dpkg-query", "exit 127")
    fake.program("rpm", rf"printf '{name}\t0:570.133.20-1\tNVIDIA Corporation (none)\n'")
    assert fake.look().fabric_manager == "570.133.20"


@pytest.mark.extended
def test_gpu_facts_ignore_holds_by_tfctl_and_report_packages_that_drifted(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.put("var/lib/tfctl/held.json", json.dumps({"nvidia_driver": {"libcuda1": "535.1-1", "nvidia-smi": "535.1-1"}}))
    fake.packages("hi libcuda1 535.1-1 Debian NVIDIA <x>", "hi nvidia-smi 535.1-1 Debian NVIDIA <x>")
    seen = fake.look()
    assert (seen.own, seen.held, seen.drifted) == (True, (), ())
    fake.packages("ii libcuda1 535.1-1 Debian NVIDIA <x>", "hi nvidia-smi 535.2-1 Debian NVIDIA <x>")
    assert fake.look().drifted == ("libcuda1", "nvidia-smi")


def test_package_that_was_not_put_on_hold_has_not_drifted_when_an_update_has_replaced_it(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    record = {"libnvidia-compute-580-server": "", "linux-modules-nvidia-580-server-5.15.0-91-generic": ""}
    fake.put("var/lib/tfctl/held.json", json.dumps({"nvidia_driver": record}))
    fake.packages("ii libnvidia-compute-580-server 580.95.05-0ubuntu0.22.04.2 Ubuntu Core Developers <x>")
    seen = fake.look()
    assert (seen.own, seen.drifted) == (True, ())


def has_tfctls_driver(fake: FakeHost) -> None:
    """Give the host Debian's driver as the role leaves it, with all of its packages recorded and on hold."""
    listed = (Path(__file__).parent / "packages/debian-12/Packages").read_text()
    names = sorted({name for name in re.findall(r"^Package: (.*)$", listed, re.M) if transaction.NVIDIA.search(name)})
    assert {"libcuda1", "nvidia-alternative", "glx-alternative-nvidia"} <= {*names}
    fake.device("0000:17:00.0", "20b5", "030200")
    fake.put("var/lib/tfctl/held.json", json.dumps({"nvidia_driver": dict.fromkeys(names, "535.261.03-1")}))
    fake.packages(*(f"hi {name} 535.261.03-1 {DEBIANS}" for name in names))
    fake.put("proc/driver/nvidia/version", PROPRIETARY.replace("535.161.07", "535.261.03"))
    fake.program(
        "nvidia-smi",
        f'echo "GPU-1, 00000000:17:00.0, 8.0, 535.261.03, Disabled, Enabled, {HEALTHY}, NVIDIA A100 80GB PCIe"',
    )
    for path in (gpu_facts.BLACKLIST, gpu_facts.UNIT, "usr/bin/nvidia-modprobe"):
        fake.put(path, "")
    fake.put("run/nvidia-persistenced/socket", "")
    for link in (gpu_facts.AT_BOOT, "dev/nvidiactl", "dev/nvidia-uvm"):
        (fake.root / link).parent.mkdir(parents=True, exist_ok=True)
        (fake.root / link).symlink_to("/dev/null")


def test_driver_that_tfctl_has_installed_needs_no_second_run_of_its_role(fake: FakeHost) -> None:
    """tfctl also holds packages that no pattern of a driver matches, such as nvidia-alternative."""
    has_tfctls_driver(fake)
    seen = fake.look()
    assert (seen.own, seen.held, seen.drifted) == (True, (), ())
    decision, faults = decide(replace(facts(), gpu=seen), wanted())
    assert faults == [] and decision.gpu and decision.gpu.driver and not decision.gpu.driver.needed
    (fake.bin / "rows").write_text(
        (fake.bin / "rows").read_text().replace("hi \tnvidia-alternative", "ii \tnvidia-alternative")
    )
    assert fake.look().drifted == ("nvidia-alternative",)


@pytest.mark.parametrize(("status", "version"), [("ii", ""), ("hi", "535.161.07-1")], ids=["now", "earlier tfctl"])
def test_driver_stays_its_owners_after_tfctl_has_added_a_fabric_manager(
    fake: FakeHost, status: str, version: str
) -> None:
    fake.device("0000:17:00.0", "2330", "030200")
    fake.device("0000:18:00.0", "22a3", "068000")
    fake.program("systemctl", '[ "$*" = "is-active nvidia-fabricmanager" ]')
    fake.put("proc/driver/nvidia/version", PROPRIETARY)
    fake.program(
        "nvidia-smi",
        f'echo "GPU-1, 00000000:17:00.0, 9.0, 535.161.07, Disabled, Enabled, {HEALTHY}, NVIDIA H100 80GB HBM3"',
    )
    fake.put("var/lib/tfctl/held.json", json.dumps({"nvidia_driver": {"nvidia-fabricmanager-535": version}}))
    fake.packages(
        f"ii libnvidia-compute-535 535.161.07-0ubuntu1 {NVIDIAS}",
        f"{status} nvidia-fabricmanager-535 535.161.07-1 {NVIDIAS}",
    )
    seen = fake.look()
    assert (seen.own, seen.held, seen.fabric_manager) == (False, (), "535.161.07")
    host = facts(system="ubuntu-22.04", title="ubuntu-22.04")
    decision, faults = decide(replace(host, gpu=replace(seen, missing_nodes=())), wanted())
    assert (decision.gpu, faults) == (None, []), "nothing is to be done about the driver"


def test_gpu_facts_contain_recorded_packages_whose_names_do_not_contain_nvidia(fake: FakeHost) -> None:
    fake.device("0000:01:00.0", "20b5", "030200")
    fake.put("var/lib/tfctl/held.json", json.dumps({"nvidia_driver": {"libnvsdm": "580.95.05-1"}}))
    fake.program(
        "dpkg-query", rf"case $* in *' libnvsdm') printf 'hi \tlibnvsdm\t580.95.05-1\t{NVIDIAS}\n';; esac; exit 1"
    )
    assert fake.look().drifted == ()


class FakeGpuHost(FakeHost):
    """A host with a GPU, its driver's module for DKMS and fakes of the driver's programs, which it has just booted."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        fake_driver.install(self.bin, self.root)
        self.device("0000:17:00.0", "20b5", "030200")
        self.release = platform.release()
        (self.root / "run/stub/driver").mkdir(parents=True)
        (self.root / "proc").mkdir()
        (self.root / "proc/driver").symlink_to(self.root / "run/stub/driver")
        self.put("usr/bin/nvidia-modprobe", "")
        self.packages(
            f"ii libcuda1 535.261.03-1 {DEBIANS}",
            f"ii nvidia-kernel-dkms 535.261.03-1 {DEBIANS}",
            f"ii linux-image-amd64 6.1.158-1 {DEBIANS}",
        )
        self.run("dkms", "add", "-m", "nvidia-current", "-v", "535.261.03")

    def run(self, *words: str) -> int:
        return subprocess.run(words, env={**os.environ}, timeout=60, capture_output=True).returncode

    def install_headers(self) -> None:
        (self.root / f"lib/modules/{self.release}/build/include").mkdir(parents=True)

    def packages(self, *rows: str) -> None:
        """Set what dpkg-query prints, also of one package or with other fields, which are empty."""
        super().packages(*rows)
        library = next(row.split()[2] for row in rows if " libcuda1 " in row)
        self.program(
            "dpkg-query",
            f"case $* in *' libcuda1') printf {library};; *Depends*) ;; *) cat {self.bin}/rows; exit 1;; esac",
        )


DEBIANS = "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>"
ROLE = Path(__file__).parents[3] / "roles/nvidia_driver"


@pytest.fixture
def gpu_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuHost:
    return FakeGpuHost(tmp_path, monkeypatch)


def boot_commands(host: FakeGpuHost) -> list[str]:
    """Return what tfctl_nvidia.service runs, with the paths of the tree."""
    template = Template((ROLE / "templates/etc/systemd/system/tfctl_nvidia.service.j2").read_text())
    text = template.render(nvidia_driver_services=["nvidia-persistenced", "nvidia-fabricmanager"])
    assert "Before=nvidia-persistenced.service nvidia-fabricmanager.service\n" in text
    lines = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    changes = {"/usr/bin/": f"{host.bin}/", "/proc/": f"{host.root}/proc/", "$$": "$"}
    for old, new in changes.items():
        lines = [line.replace(old, new) for line in lines]
    return lines


def test_device_node_of_unified_memory_is_missing_although_nvidia_smi_works(gpu_host: FakeGpuHost) -> None:
    """So is it after each boot of Debian: loading a module creates no node, and nvidia-smi does not need this one."""
    gpu_host.install_headers()
    gpu_host.run("dkms", "autoinstall")
    gpu_host.run("modprobe", "nvidia", "nvidia-uvm")
    seen = gpu_host.look()
    assert (seen.loaded, seen.smi.said, len(seen.smi.gpus)) == ("535.261.03", "", 1)
    assert seen.missing_nodes == ("/dev/nvidia-uvm",)


def test_node_part_finds_the_gpu_of_the_fake_driver(gpu_host: FakeGpuHost) -> None:
    gpu_host.install_headers()
    gpu_host.run("dkms", "autoinstall")
    system = System(prefix=str(gpu_host.root), nvidia_smi=(str(gpu_host.bin / "nvidia-smi"),))
    seen = gpus.look(system)
    (gpu,) = seen.devices
    assert (gpu.name, gpu.memory_mib, gpu.holder, gpu.driver) == ("NVIDIA A100 80GB PCIe", 81920, "", "535.261.03")
    assert (seen.trouble, seen.missing) == (None, ())
    (card,) = gpus.cards(system)
    assert (card.uuid, card.persistence, card.max_mhz) == (gpu.uuid, False, 1410)


def test_boot_service_creates_every_device_node(gpu_host: FakeGpuHost) -> None:
    gpu_host.install_headers()
    gpu_host.run("dkms", "autoinstall")
    for line in boot_commands(gpu_host):
        assert gpu_host.run(*shlex.split(line)) == 0, line
    assert sorted(path.name for path in (gpu_host.root / "dev").iterdir()) == ["nvidia-uvm", "nvidia0", "nvidiactl"]
    assert gpu_host.look().missing_nodes == ()


@pytest.mark.extended
def test_driver_is_loaded_at_boot_only_if_the_enabled_service_has_its_unit_file(gpu_host: FakeGpuHost) -> None:
    """The link of an enabled unit outlives the file."""
    assert not gpu_host.look().at_boot
    gpu_host.put(gpu_facts.UNIT, "[Service]\n")
    assert not gpu_host.look().at_boot
    link = gpu_host.root / gpu_facts.AT_BOOT
    link.parent.mkdir(parents=True)
    link.symlink_to(f"/{gpu_facts.UNIT}")
    assert gpu_host.look().at_boot
    (gpu_host.root / gpu_facts.UNIT).unlink()
    assert not gpu_host.look().at_boot


def test_boot_service_fails_without_a_module_for_the_running_kernel(gpu_host: FakeGpuHost) -> None:
    assert gpu_host.run("dkms", "autoinstall") == 11, "the headers are missing"
    assert gpu_host.run(*shlex.split(boot_commands(gpu_host)[0])) == 1
    seen = gpu_host.look()
    assert (seen.loaded, seen.kernel.module, seen.kernel.headers) == ("", False, False)
    assert seen.dkms == (DkmsBuild("535.261.03", kernel="", state="added"),)
    gpu_host.install_headers()
    gpu_host.run("dkms", "autoinstall", "--kernelver", gpu_host.release)
    assert gpu_host.look().kernel.module


def test_persistence_is_off_when_the_daemon_runs_without_the_mode(gpu_host: FakeGpuHost) -> None:
    """So does Ubuntu start it. The drop-in of the role switches the mode on."""
    gpu_host.install_headers()
    gpu_host.run("dkms", "autoinstall")
    gpu_host.run("nvidia-persistenced", "--no-persistence-mode")
    assert not gpu_host.look().persistence
    drop_in = ROLE / "files/etc/systemd/system/nvidia-persistenced.service.d/tfctl.conf"
    (command,) = re.findall(r"^ExecStartPost=/usr/bin/(.*)$", drop_in.read_text(), re.MULTILINE)
    gpu_host.run(*shlex.split(command))
    assert gpu_host.look().persistence


def test_kernel_facts_name_the_metapackage_of_the_running_series(fake: FakeHost) -> None:
    """The host has Ubuntu's first kernel and the one for newer hardware."""
    rows = [
        "ii \tlinux-image-6.8.0-49-generic\tkmod",
        "ii \tlinux-image-generic\tlinux-image-5.15.0-126-generic, linux-firmware",
        "ii \tlinux-image-generic-hwe-22.04\tlinux-image-6.8.0-49-generic, linux-firmware",
        "un \tlinux-image-virtual\t",
        "ii \tlinux-headers-generic-hwe-22.04\tlinux-headers-6.8.0-49-generic",
    ]
    (fake.bin / "rows").write_text("".join(f"{row}\n" for row in rows))
    fake.program("dpkg-query", f"cat {fake.bin}/rows")
    assert kernel_facts.metapackage("6.8.0-49-generic") == ("linux-image-generic-hwe-22.04", "")
    assert kernel_facts.metapackage("5.15.0-91-generic") == ("linux-image-generic", "linux-headers-generic")


@pytest.mark.parametrize(
    ("lists", "offered"),
    [
        (" linux-libc-dev | 6.1.158-1 | https://a\n linux-headers-6.1.0-47-amd64 | 6.1.158-1 | https://a\n",
         ["linux-headers-6.1.0-47-amd64"]),
        (" linux-libc-dev | 6.1.158-1 | https://a\nN: Unable to locate package linux-headers-6.1.0-47-amd64\n", []),
        ("N: Unable to locate package linux-libc-dev\n", None),
    ],
)  # fmt: skip
def test_kernel_facts_distinguish_missing_headers_from_missing_package_lists(
    fake: FakeHost, lists: str, offered: list[str] | None
) -> None:
    (fake.bin / "lists").write_text(lists)
    fake.program("apt-cache", f"cat {fake.bin}/lists")
    fake.program("dnf", "exit 1")  # Debian has it too: apt decides where both are
    assert kernel_facts.offered(["linux-headers-6.1.0-47-amd64"]) == offered


@pytest.mark.parametrize(
    ("line", "is_driver"),
    [
        ("updates/dkms/nvidia-current.ko: kernel/drivers/i2c/i2c-core.ko", True),
        ("kernel/nvidia-580srv/nvidia.ko:", True),
        ("extra/nvidia.ko.xz: kernel/drivers/acpi/video.ko.xz", True),
        ("updates/dkms/nvidia-current-drm.ko: updates/dkms/nvidia-current.ko", False),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:", False),
        ("kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko: kernel/drivers/platform/x86/wmi.ko", False),
    ],
)
def test_module_of_the_driver_is_recognised_among_others(line: str, is_driver: bool) -> None:
    assert bool(kernel_facts.MODULE.search(f"{line}\n")) is is_driver
