"""The GPU roles of tfctl provision, on two nodes that appear to have GPUs.

Real are Debian's packages of the NVIDIA driver, CUDA and NCCL, the files that apt reads, what the loader finds, and a
reboot. Fake are the device and its kernel module, the files below /sys and /proc, and nvidia-smi.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.lab.plays import play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Creates what a kernel shows of a GPU and of its driver, once per boot.
KERNEL = """#!/bin/sh -e
mountpoint -q /sys/bus/pci/devices && exit 0
device=/run/stub/pci/0000:17:00.0
mkdir -p $device /run/stub/driver/nvidia
echo 0x10de > $device/vendor; echo 0x20b5 > $device/device; echo 0x030200 > $device/class
mount --bind /run/stub/pci /sys/bus/pci/devices
mount --bind /run/stub/driver /proc/driver
if [ -e /etc/stub-version ]; then modprobe nvidia; fi
"""
MODPROBE = """#!/bin/sh -e
version=$(cat /etc/stub-version 2>/dev/null || dpkg-query -W -f '${Version}' libcuda1 | sed 's/-.*//')
echo $version > /etc/stub-version
mkdir -p /run/stub/driver/nvidia
echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  $version  Sat Feb 17 22:55:48 UTC 2024" \
    > /run/stub/driver/nvidia/version
"""
SMI = """#!/bin/sh
version=$(sed 's/.*Module *//; s/ .*//' /proc/driver/nvidia/version)
echo "GPU-1b7a7a2e-0001, NVIDIA A100 80GB PCIe, 8.0, $version, Disabled"
"""
PERSISTENCED = """[Service]
Type=exec
ExecStart=
ExecStart=/bin/sh -c 'mkdir -p /run/nvidia-persistenced; touch /run/nvidia-persistenced/socket; exec sleep infinity'
ExecStopPost=
"""
#: Debian has no headers for the kernel of the machine that runs the lab: install an empty package in their place.
HEADERS = """
folder=$(mktemp -d); mkdir $folder/DEBIAN
cat > $folder/DEBIAN/control <<END
Package: linux-headers-$(uname -r)
Version: 1
Architecture: all
Maintainer: x <x@example.org>
Description: x
END
dpkg-deb --build $folder /tmp/headers.deb >/dev/null && dpkg -i /tmp/headers.deb >/dev/null
"""
FILES = {
    "/usr/local/sbin/stub-kernel": KERNEL,
    "/usr/local/sbin/modprobe": MODPROBE,
    "/usr/local/bin/nvidia-smi": SMI,
    "/usr/local/bin/systemd-detect-virt": "#!/bin/sh\necho none; exit 1\n",
    "/etc/systemd/system/stub-kernel.service": (
        "[Unit]\nBefore=ssh.service nvidia-persistenced.service\n[Service]\nType=oneshot\n"
        "ExecStart=/usr/local/sbin/stub-kernel\n[Install]\nWantedBy=multi-user.target\n"
    ),
    "/etc/systemd/system/nvidia-persistenced.service.d/stub.conf": PERSISTENCED,
}


class Gpus:
    """A lab with GPUs: node1 is Debian 12, node2 is Debian 13."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def root(self, node: str, script: str, timeout: float = 60) -> str:
        return self.lab.root_script(node, script, timeout)

    def put(self, node: str, files: dict[str, str]) -> None:
        for path, text in files.items():
            coded = base64.b64encode(text.encode()).decode()
            self.root(node, f"mkdir -p $(dirname {path}); echo {coded} | base64 -d > {path}; chmod 755 {path}")

    def provision(self, node: str, *words: object, tags: str, **variables: object) -> dict[str, Any]:
        """Run `tfctl provision`; return the host's entry of the report, with the exit code of tfctl as `code`."""
        inventory = self.lab.folder / "gpus.ini"
        more = "".join(f"{name}={value}\n" for name, value in variables.items())
        inventory.write_text(f"{self.lab.inventory.read_text()}\n[all:vars]\n{more}")
        words = ("--limit", node, "--tags", tags, "--stack", "tf2.15", "-o", "json", *words)
        done = self.lab.tfctl("provision", inventory, *words, check=False, timeout=1000)
        (host,) = json.loads(done.stdout)["hosts"]
        return {**host, "code": done.returncode}

    def assert_unchanged(self, node: str, **more: Any) -> None:
        """Assert that a second run and a run with --check change nothing."""
        for words in ((), ("--check",)):
            host = self.provision(node, *words, **more)
            assert (host["code"], host["changed"]) == (0, 0), (words, host)


@pytest.fixture(scope="module")
def gpus(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpus]:
    found = Gpus(Lab(f"{run_name}-gpu", tmp_path_factory.mktemp("gpus")))
    found.lab.up("--nodes", 2, "--suite", "bookworm,trixie")
    try:
        for node in ("node1", "node2"):
            found.put(node, FILES)
            found.root(node, f"{HEADERS}systemctl daemon-reload; systemctl enable --now stub-kernel")
        yield found
    finally:
        found.lab.down()


def test_driver_of_debian_is_installed_and_held(gpus: Gpus) -> None:
    host = gpus.provision("node1", "--check", tags="nvidia_driver")
    assert (host["code"], host["changed"] > 0) == (0, True), host
    assert gpus.root("node1", "ls /etc/modprobe.d /etc/apt/sources.list.d | grep tfctl || true") == ""
    host = gpus.provision("node1", tags="nvidia_driver")
    assert host["code"] == 0, host
    listed = gpus.root("node1", "cat /etc/apt/sources.list.d/tfctl-non-free.list")
    assert re.search(r"^deb (\[signed-by=/\S+\] )?\S+ bookworm contrib non-free non-free-firmware$", listed, re.M)
    expected_state.nvidia_driver(gpus.lab.testinfra("node1"), "535")
    assert gpus.root("node1", "ls -d /usr/src/nvidia-current-*")
    gpus.assert_unchanged("node1", tags="nvidia_driver")


@pytest.mark.parametrize(
    "harm",
    [
        "apt-mark unhold libcuda1",
        "apt-get -qy --allow-change-held-packages remove nvidia-smi",
        "rm /etc/modprobe.d/tfctl-nouveau.conf",
        "systemctl stop nvidia-persistenced; rm /run/nvidia-persistenced/socket",
        "systemctl disable nvidia-persistenced",
    ],
)
def test_driver_is_repaired_after_a_manual_change(gpus: Gpus, harm: str) -> None:
    node1 = gpus.lab.testinfra("node1")
    gpus.root("node1", harm)
    expected_state.is_violated(expected_state.nvidia_driver, node1, "535")
    host = gpus.provision("node1", tags="nvidia_driver")
    assert (host["code"], host["changed"] > 0) == (0, True), host
    expected_state.nvidia_driver(node1, "535")
    gpus.assert_unchanged("node1", tags="nvidia_driver")


def test_reboot_happens_only_when_needed_allowed_and_no_job_runs(gpus: Gpus) -> None:
    """The kernel has loaded an older driver than the installed one. The reboot is real."""
    boot = "cat /proc/sys/kernel/random/boot_id"
    installed = gpus.root("node1", "cat /etc/stub-version")
    gpus.root("node1", "echo 530.30.02 > /etc/stub-version; modprobe nvidia; rm /etc/stub-version")
    before = gpus.root("node1", boot)
    waits = f"needs a reboot: driver {installed} is installed, 530.30.02 is loaded"
    host = gpus.provision("node1", tags="nvidia_driver")
    assert (host["code"], host["reason"]) == (1, waits), host
    assert "tfctl provision --reboot" in host["remedy"]
    unit = "tfctl-busy-worker-0.service"
    busy = f"printf '[Service]\\nExecStart=/bin/sleep infinity\\n' > /run/systemd/system/{unit}; systemctl start {unit}"
    gpus.root("node1", busy)
    host = gpus.provision("node1", "--reboot", tags="nvidia_driver")
    assert host["reason"] == f"{waits}. tfctl does not reboot it: {unit} run"
    gpus.root("node1", f"systemctl stop {unit}")
    assert gpus.root("node1", boot) == before
    gpus.root("node1", f"echo {installed} > /etc/stub-version")
    host = gpus.provision("node1", "--reboot", tags="nvidia_driver")
    assert host["code"] == 0, host
    assert gpus.root("node1", boot) != before
    gpus.assert_unchanged("node1", tags="nvidia_driver")


def test_nccl_of_debian_is_installed_held_and_loadable(gpus: Gpus) -> None:
    """The node runs Debian 13 with a driver that tfctl does not manage, and a Python 3.11 that the user installed."""
    gpus.root(
        "node2",
        "echo 550.163.01 > /etc/stub-version; modprobe nvidia; ln -s /usr/bin/python3 /usr/local/bin/python3.11",
    )
    wishes = {"tags": "nccl", "tfctl_driver": "none", "tfctl_nccl_method": "distribution"}
    host = gpus.provision("node2", **wishes)
    assert host["code"] == 0, host
    nccl = (gpus.lab.testinfra("node2"), {"libnccl2": "2.22.3", "libnccl-dev": "2.22.3"}, "libnccl.so.2")
    expected_state.nccl(*nccl)
    gpus.assert_unchanged("node2", **wishes)
    gpus.root("node2", "apt-get -qy --allow-change-held-packages remove libnccl-dev")
    expected_state.is_violated(expected_state.nccl, *nccl)
    host = gpus.provision("node2", **wishes)
    assert (host["code"], host["changed"]) == (0, 1), host
    expected_state.nccl(*nccl)
    gpus.assert_unchanged("node2", **wishes)


def test_cuda_of_debian_is_installed_held_and_loadable(gpus: Gpus) -> None:
    """Debian has CUDA 11.8, which no stack needs. The test runs the role alone, for two small libraries."""
    node1, packages = gpus.lab.testinfra("node1"), ["libcudart11.0", "libcublas11"]
    cuda = (node1, dict.fromkeys(packages, "11."), "libcudart.so.11.0", "libcublas.so.11")
    given = {"cuda_version": "11.8.0", "cuda_packages": packages, "cuda_soname": "libcudart.so.11.0"}
    for harm in ("true", "apt-mark unhold libcublas11", "apt-get -qy --allow-change-held-packages remove libcublas11"):
        gpus.root("node1", harm)
        expected_state.is_violated(expected_state.cuda, *cuda)
        assert re.search("changed=[1-9].*failed=0 ", output := play(gpus.lab, ["cuda"], given)), output
        assert_role_unchanged(gpus.lab, "cuda", given)
        expected_state.cuda(*cuda)
    output = play(gpus.lab, ["cuda"], {**given, "cuda_version": "11.2.2"})
    assert "libcudart.so.11.0 is version 11080; 11020 is required" in output


#: Loads the libraries as a job does: with the Python of the stack and without LD_LIBRARY_PATH.
LOAD_LIBRARIES = """
import ctypes, pathlib, sys
import tensorflow
built = tensorflow.sysconfig.get_build_info()
print(tensorflow.__version__, built["cuda_version"], built["cudnn_version"])
print(tensorflow.config.list_physical_devices("GPU"))
folder = pathlib.Path(tensorflow.__file__).parents[1] / "nvidia"
cudnn = ctypes.CDLL(str(folder / "cudnn/lib/libcudnn.so.8"))
nccl, version = ctypes.CDLL(str(folder / "nccl/lib/libnccl.so.2")), ctypes.c_int()
nccl.ncclGetVersion(ctypes.byref(version))
print(cudnn.cudnnGetVersion(), version.value)
print((folder / "cuda_nvcc/bin/ptxas").exists())
"""


@pytest.mark.timeout(1200)
def test_gpu_edition_installs_cuda_cudnn_and_nccl_from_wheels(gpus: Gpus) -> None:
    host = gpus.provision("node1", tags="job_host,tensorflow")
    assert host["code"] == 0, host
    gpus.put("node1", {"/srv/loads.py": LOAD_LIBRARIES})
    output = gpus.root(
        "node1", "runuser -u nobody -- /opt/tfctl/stacks/tf2.15/bin/python -I /srv/loads.py 2>/dev/null", 120
    )
    assert output.splitlines() == ["2.15.1 12.2 8", "[]", "8904 21605", "True"]
    gpus.assert_unchanged("node1", tags="job_host,tensorflow")


def test_toolchain_installs_and_repairs_a_compiler_that_nvcc_supports(gpus: Gpus) -> None:
    host = gpus.provision("node1", tags="toolchain", tfctl_toolchain="true")
    assert host["code"] == 0, host
    node1 = gpus.lab.testinfra("node1")
    expected_state.toolchain(node1, 12)
    gpus.assert_unchanged("node1", tags="toolchain", tfctl_toolchain="true")
    gpus.root("node1", "apt-get -qy remove g++-12 make")
    expected_state.is_violated(expected_state.toolchain, node1, 12)
    host = gpus.provision("node1", tags="toolchain", tfctl_toolchain="true")
    assert (host["code"], host["changed"] > 0) == (0, True), host
    expected_state.toolchain(node1, 12)
    gpus.assert_unchanged("node1", tags="toolchain", tfctl_toolchain="true")


def test_cudnn_from_an_archive_is_found_by_the_loader_and_repaired(gpus: Gpus, tmp_path: Path) -> None:
    """The archive contains a shared library that reports version 8.9.7, since NVIDIA's cannot be downloaded freely."""
    library, data = tmp_path / "libcudnn.so.8", io.BytesIO()
    words = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-Wl,-soname,libcudnn.so.8"]
    source = "unsigned long cudnnGetVersion(void) { return 8907; }"
    subprocess.run(words, input=source, text=True, check=True, timeout=60)
    with tarfile.open(fileobj=data, mode="w:xz") as archive:
        archive.add(library, "cudnn/lib/libcudnn.so.8")
    gpus.root("node1", f"echo {base64.b64encode(data.getvalue()).decode()} | base64 -d > /srv/cudnn.txz")
    given = {
        "cudnn_version": "8.9.7.29", "cudnn_soname": "libcudnn.so.8",
        "cudnn_library_dirs": ["/opt/tfctl/cudnn/8.9.7.29/lib"], "cudnn_archive_url": "file:///srv/cudnn.txz",
        "cudnn_archive_sha256": hashlib.sha256(data.getvalue()).hexdigest(),
    }  # fmt: skip
    cudnn: tuple[Any, ...] = (gpus.lab.testinfra("node1"), {}, "libcudnn.so.8")
    assert re.search("changed=[1-9].*failed=0 ", output := play(gpus.lab, ["cudnn"], given)), output
    expected_state.cudnn(*cudnn)
    assert "/opt/tfctl/cudnn/8.9.7.29/lib/libcudnn.so.8" in gpus.root("node1", "ldconfig -p")
    assert_role_unchanged(gpus.lab, "cudnn", given)
    for harm in ("rm /opt/tfctl/cudnn/8.9.7.29/lib/libcudnn.so.8", "rm /etc/ld.so.conf.d/tfctl-cudnn-*; ldconfig"):
        gpus.root("node1", harm)
        expected_state.is_violated(expected_state.cudnn, *cudnn)
        assert re.search("changed=[1-9].*failed=0 ", output := play(gpus.lab, ["cudnn"], given)), output
        assert_role_unchanged(gpus.lab, "cudnn", given)
        expected_state.cudnn(*cudnn)
    output = play(gpus.lab, ["cudnn"], {**given, "cudnn_version": "8.9.4.25"})
    assert "libcudnn.so.8 is version 8907; 8904 is required" in output


def assert_role_unchanged(lab: Lab, name: str, given: dict[str, Any]) -> None:
    for words in ((), ("--check",)):
        assert re.search("changed=0 .*failed=0 ", output := play(lab, [name], given, *words)), output
