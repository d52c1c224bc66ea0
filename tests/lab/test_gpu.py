"""The GPU roles of tfctl provision, on two nodes that appear to have GPUs.

Real are Debian's packages of the NVIDIA driver, CUDA and NCCL, the files that apt reads, what the loader finds, and a
reboot. Fake are the device and its kernel module, the files below /sys and /proc, the headers of the kernel,
update-initramfs, and the programs of fake_driver.py: modprobe, nvidia-modprobe, nvidia-smi, nvidia-persistenced and
dkms.
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

import fake_driver
import pytest

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.lab.plays import play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Creates what a kernel shows of a GPU, once per boot, and loads the driver, as udev does on Debian: without uvm.
KERNEL = """#!/bin/sh -e
mountpoint -q /sys/bus/pci/devices && exit 0
device=/run/stub/pci/0000:17:00.0
mkdir -p $device /run/stub/driver/nvidia
echo 0x10de > $device/vendor; echo 0x20b5 > $device/device; echo 0x030200 > $device/class
mount --bind /run/stub/pci /sys/bus/pci/devices
mount --bind /run/stub/driver /proc/driver
rm -f /dev/nvidia*
modprobe nvidia || true
"""
#: Ubuntu starts the daemon without persistence mode.
PERSISTENCED = """[Service]
ExecStart=
ExecStart=/usr/local/sbin/nvidia-persistenced --user nvpd --no-persistence-mode
"""
#: Debian has no headers for the kernel of the machine that runs the lab: a package source of the node's own has them,
#: with the packages that follow updates of the kernel.
PACKAGES = r"""
release=$(uname -r); mkdir -p /srv/kernel; cd /srv/kernel
package() {  # NAME DEPENDS
    mkdir -p $1/DEBIAN
    printf 'Package: %s\nVersion: 99\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' $1 \
        > $1/DEBIAN/control
    if [ -n "$2" ]; then echo "Depends: $2" >> $1/DEBIAN/control; fi
}
package linux-headers-$release ''
mkdir -p linux-headers-$release/usr/src/linux-headers-$release/include linux-headers-$release/lib/modules/$release
ln -s /usr/src/linux-headers-$release linux-headers-$release/lib/modules/$release/build
printf '#!/bin/sh\ncd /etc/kernel/header_postinst.d 2>&- || exit 0\nrun-parts --arg=%s .\n' $release \
    > linux-headers-$release/DEBIAN/postinst
chmod 755 linux-headers-$release/DEBIAN/postinst
package linux-headers-amd64 linux-headers-$release
package linux-image-amd64 ''
for name in linux-headers-$release linux-headers-amd64 linux-image-amd64; do dpkg-deb --build $name . >/dev/null; done
dpkg -i linux-image-amd64_*.deb >/dev/null
for file in *.deb; do
    dpkg-deb --field $file
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' $file $(stat -c %s $file) $(sha256sum < $file | cut -d' ' -f1)
done > Packages
echo 'deb [trusted=yes] file:/srv/kernel ./' > /etc/apt/sources.list.d/kernel.list
apt-get -qq update
"""
#: Puts the fakes in the place of programs that units start by their paths. update-alternatives replaces no plain file.
DIVERT = """
for name in nvidia-modprobe nvidia-smi; do
    dpkg-divert --quiet --local --rename --divert /usr/bin/$name.real --add /usr/bin/$name
    cp /usr/local/sbin/$name /usr/bin/$name
done
"""
#: Unloads the driver, and removes the nodes, as a reboot does.
UNLOAD = "systemctl stop nvidia-persistenced tfctl_nvidia; rm -r /run/stub/driver/nvidia /run/stub/uvm /dev/nvidia*; "
BUILDS = "/var/lib/dkms/fake.json"
#: Where the fake of update-initramfs writes its arguments.
INITRAMFS = "/var/log/stub-initramfs"
#: What the roles nvidia_driver and nvidia_repo write on node1.
WRITTEN = (
    "/etc/systemd/system/tfctl_nvidia.service",
    "/etc/systemd/system/nvidia-persistenced.service.d/tfctl.conf",
    "/etc/apt/apt.conf.d/52tfctl-nvidia",
    "/etc/modprobe.d/tfctl-nouveau.conf",
    "/etc/apt/sources.list.d/tfctl-non-free.list",
)
FAKE = Path(fake_driver.__file__).read_text()
FILES = {
    "/usr/local/sbin/stub-kernel": KERNEL,
    **{f"/usr/local/sbin/{name}": FAKE for name in fake_driver.NAMES},
    "/usr/sbin/update-initramfs": f'#!/bin/sh\necho "$*" >>{INITRAMFS}\n',
    "/etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";\n',
    # dpkg finds the fakes first. The real dkms would build a module, and no package has the headers of this kernel.
    "/etc/apt/apt.conf.d/99stub": 'DPkg::Path "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin";\n',
    "/usr/local/bin/systemd-detect-virt": "#!/bin/sh\necho none; exit 1\n",
    "/etc/systemd/system/stub-kernel.service": (
        "[Unit]\nBefore=ssh.service nvidia-persistenced.service tfctl_nvidia.service\n[Service]\nType=oneshot\n"
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

    def provision(self, node: str, *words: object, tags: str = "", **variables: object) -> dict[str, Any]:
        """Run `tfctl provision`; return the host's entry of the report, with the exit code of tfctl as `code`.

        Without ``tags``, all roles run whose receipts do not hold.
        """
        inventory = self.lab.folder / "gpus.ini"
        more = "".join(f"{name}={value}\n" for name, value in variables.items())
        inventory.write_text(f"{self.lab.inventory.read_text()}\n[all:vars]\n{more}")
        words = ("--limit", node, "--stack", "tf2.15", "-o", "json", *(("--tags", tags) if tags else ()), *words)
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
            found.root(node, f"{DIVERT}{PACKAGES}systemctl daemon-reload; systemctl enable --now stub-kernel", 120)
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
        "rm /etc/apt/apt.conf.d/52tfctl-nvidia",
        "rm /etc/systemd/system/tfctl_nvidia.service",
        "rm /etc/systemd/system/nvidia-persistenced.service.d/tfctl.conf",
        "systemctl stop nvidia-persistenced",
        "systemctl disable nvidia-persistenced",
        "echo Disabled > /run/stub/persistence",
        "rm /dev/nvidia-uvm",
        "systemctl disable tfctl_nvidia",
        "apt-get -qy remove linux-headers-amd64",
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


def test_driver_role_runs_alone_in_the_play_of_a_user(gpus: Gpus) -> None:
    node1 = gpus.lab.testinfra("node1")
    packages = ["nvidia-kernel-dkms", "libcuda1", "nvidia-smi", "nvidia-persistenced", "nvidia-modprobe"]
    given = {"nvidia_driver_packages": packages}
    assert_role_unchanged(gpus.lab, "nvidia_driver", given)
    gpus.root("node1", "apt-mark unhold libcuda1; rm /etc/modprobe.d/tfctl-nouveau.conf")
    expected_state.is_violated(expected_state.nvidia_driver, node1, "535")
    assert re.search("changed=[1-9].*failed=0 ", output := play(gpus.lab, ["nvidia_driver"], given)), output
    assert_role_unchanged(gpus.lab, "nvidia_driver", given)
    expected_state.nvidia_driver(node1, "535")
    gpus.assert_unchanged("node1", tags="nvidia_driver")


def test_driver_is_built_again_after_a_kernel_update_without_headers(gpus: Gpus) -> None:
    """The running kernel has neither headers nor a module, as after an update on a host with the headers of another."""
    gpus.root("node1", "apt-get -qy remove linux-headers-$(uname -r)")
    gpus.root("node1", f"{UNLOAD}rm -r /lib/modules/$(uname -r); sed -i s/$(uname -r)/6.1.0-1-amd64/ {BUILDS}")
    node1 = gpus.lab.testinfra("node1")
    expected_state.is_violated(expected_state.nvidia_driver, node1, "535")
    host = gpus.provision("node1", tags="nvidia_driver")
    assert host["code"] == 0, host
    expected_state.nvidia_driver(node1, "535")
    gpus.assert_unchanged("node1", tags="nvidia_driver")


def test_kernel_whose_headers_the_sources_no_longer_have_is_refused(gpus: Gpus) -> None:
    away = "mv /etc/apt/sources.list.d/kernel.list /srv/; apt-get -qy remove linux-headers-$(uname -r)"
    gpus.root("node1", f"{away}; {UNLOAD}mv /lib/modules/$(uname -r) /srv/modules; apt-get -qq update")
    host = gpus.provision("node1", tags="nvidia_driver")
    assert (host["code"], "the package sources do not have its headers any more" in host["reason"]) == (8, True), host
    assert "apt-get install linux-image-amd64" in host["remedy"]
    back = "mv /srv/kernel.list /etc/apt/sources.list.d/; rm -rf /lib/modules/$(uname -r); apt-get -qq update"
    gpus.root("node1", f"{back}; mv /srv/modules /lib/modules/$(uname -r)")
    host = gpus.provision("node1", tags="nvidia_driver")
    assert host["code"] == 0, host


def test_reboot_happens_only_when_needed_allowed_and_no_job_runs(gpus: Gpus) -> None:
    """The kernel has loaded an older driver than the installed one. The reboot is real."""
    boot = "cat /proc/sys/kernel/random/boot_id"
    installed = gpus.root("node1", "dpkg-query -W -f '${Version}' libcuda1").partition("-")[0]
    gpus.root("node1", f"sed -i s/{installed}/530.30.02/ /run/stub/driver/nvidia/version")
    before = gpus.root("node1", boot)
    waits = f"needs a reboot: driver {installed} is installed, 530.30.02 is loaded"
    host = gpus.provision("node1", tags="nvidia_driver")
    assert (host["code"], host["reason"]) == (1, waits), host
    assert "tfctl provision INVENTORY --reboot" in host["remedy"]
    unit = "tfctl-busy-worker-0.service"
    busy = f"printf '[Service]\\nExecStart=/bin/sleep infinity\\n' > /run/systemd/system/{unit}; systemctl start {unit}"
    gpus.root("node1", busy)
    host = gpus.provision("node1", "--reboot", tags="nvidia_driver")
    assert host["reason"] == f"{waits}. tfctl does not reboot it: {unit} run"
    gpus.root("node1", f"systemctl stop {unit}")
    assert gpus.root("node1", boot) == before
    host = gpus.provision("node1", "--reboot", tags="nvidia_driver")
    assert host["code"] == 0, host
    assert gpus.root("node1", boot) != before
    expected_state.nvidia_driver(gpus.lab.testinfra("node1"), "535")
    gpus.assert_unchanged("node1", tags="nvidia_driver")


def test_nccl_of_debian_is_installed_held_and_loadable(gpus: Gpus) -> None:
    """The node runs Debian 13 with a driver that tfctl does not manage, and a Python 3.11 that the user installed."""
    gpus.root(
        "node2",
        "folder=/lib/modules/$(uname -r); mkdir -p $folder/updates; echo 550.163.01 > $folder/updates/nvidia.ko;"
        "echo updates/nvidia.ko: > $folder/modules.dep; nvidia-smi -L;"
        "ln -s /usr/bin/python3 /usr/local/bin/python3.11",
    )
    refused = gpus.provision("node2", tags="nccl", tfctl_driver="none", tfctl_nccl_method="distribution")
    assert (refused["code"], "CUDA cannot start without /dev/nvidia-uvm" in refused["reason"]) == (8, True), refused
    gpus.root("node2", "nvidia-modprobe -u -c=0")
    preferences = {"tags": "nccl", "tfctl_driver": "none", "tfctl_nccl_method": "distribution"}
    host = gpus.provision("node2", **preferences)
    assert host["code"] == 0, host
    nccl = (gpus.lab.testinfra("node2"), {"libnccl2": "2.22.3", "libnccl-dev": "2.22.3"}, "libnccl.so.2")
    expected_state.nccl(*nccl)
    gpus.assert_unchanged("node2", **preferences)
    gpus.root("node2", "apt-get -qy --allow-change-held-packages remove libnccl-dev")
    expected_state.is_violated(expected_state.nccl, *nccl)
    host = gpus.provision("node2", **preferences)
    # Removing the package also removed its hold, so provision makes two changes: it installs the package and holds it.
    assert (host["code"], host["changed"]) == (0, 2), host
    expected_state.nccl(*nccl)
    gpus.assert_unchanged("node2", **preferences)


def test_cuda_of_debian_is_installed_held_and_loadable(gpus: Gpus) -> None:
    """Debian has CUDA 11.8, which no stack needs. The test runs the role alone, for two small libraries."""
    node1, packages = gpus.lab.testinfra("node1"), ["libcudart11.0", "libcublas11"]
    cuda = (node1, dict.fromkeys(packages, "11."), "libcudart.so.11.0", "libcublas.so.11")
    given = {
        "nvidia_library_version": "11.8.0",
        "nvidia_library_packages": packages,
        "nvidia_library_soname": "libcudart.so.11.0",
    }
    for harm in ("true", "apt-mark unhold libcublas11", "apt-get -qy --allow-change-held-packages remove libcublas11"):
        gpus.root("node1", harm)
        expected_state.is_violated(expected_state.cuda, *cuda)
        assert re.search("changed=[1-9].*failed=0 ", output := play(gpus.lab, ["cuda"], given)), output
        assert_role_unchanged(gpus.lab, "cuda", given)
        expected_state.cuda(*cuda)
    output = play(gpus.lab, ["cuda"], {**given, "nvidia_library_version": "11.2.2"})
    assert "libcudart.so.11.0 is version 11080; 11020 is required" in output


#: Loads the libraries as a job does: with the Python of the stack and without LD_LIBRARY_PATH.
LOAD_LIBRARIES = """
import ctypes, pathlib, subprocess, sys
import tensorflow
built = tensorflow.sysconfig.get_build_info()
print(tensorflow.__version__, built["cuda_version"], built["cudnn_version"])
print(tensorflow.config.list_physical_devices("GPU"))
folder = pathlib.Path(tensorflow.__file__).parents[1] / "nvidia"
cudnn = ctypes.CDLL(str(folder / "cudnn/lib/libcudnn.so.8"))
nccl, version = ctypes.CDLL(str(folder / "nccl/lib/libnccl.so.2")), ctypes.c_int()
nccl.ncclGetVersion(ctypes.byref(version))
print(cudnn.cudnnGetVersion(), version.value)
print(subprocess.run(["ptxas", "--version"], capture_output=True, text=True).stdout.split()[-1])
"""


@pytest.mark.timeout(1200)
def test_gpu_edition_installs_cuda_cudnn_and_nccl_from_wheels(gpus: Gpus) -> None:
    host = gpus.provision("node1", tags="job_host,tensorflow")
    assert host["code"] == 0, host
    gpus.put("node1", {"/srv/loads.py": LOAD_LIBRARIES})
    output = gpus.root(
        "node1", "runuser -u nobody -- env PATH=/opt/tfctl/stacks/tf2.15/bin python -I /srv/loads.py 2>/dev/null", 120
    )
    assert output.splitlines() == ["2.15.1 12.2 8", "[]", "8904 21605", "cuda_12.2.r12.2/compiler.33191640_0"]
    gpus.assert_unchanged("node1", tags="job_host,tensorflow")


@pytest.mark.timeout(1200)
def test_changes_by_hand_are_found_by_the_receipts_of_the_driver_and_its_source(gpus: Gpus) -> None:
    """No option names the roles, and the driver works. Each file that tfctl has written is restored."""
    host = gpus.provision("node1")
    assert host["code"] == 0, host
    gpus.assert_unchanged("node1")
    for path in WRITTEN:
        before = gpus.root("node1", f"cat {path}")
        for harm, drift in {"echo '# mine' >>": "changed", "rm ": "removed"}.items():
            gpus.root("node1", f"{harm}{path}")
            host = gpus.provision("node1")
            assert (host["code"], host["changed"] > 0) == (0, True), (path, host)
            assert any(each.startswith(path) and drift in each for each in host["drifts"]), (path, host)
            assert gpus.root("node1", f"cat {path}") == before
    expected_state.nvidia_driver(gpus.lab.testinfra("node1"), "535")
    host = gpus.provision("node1", "--full")
    assert (host["code"], host["changed"], host["drifts"]) == (0, 0, []), host
    gpus.assert_unchanged("node1")


def test_verify_names_the_error_with_which_cuda_does_not_start(gpus: Gpus) -> None:
    """The library of the driver is Debian's real one, which finds no device behind the nodes."""
    inventory = gpus.lab.folder / "gpus.ini"
    done = gpus.lab.tfctl(
        "verify", inventory, "--limit", "node1", "--stack", "tf2.15", "-o", "json", check=False, timeout=300
    )
    (result,) = [each for each in json.loads(done.stdout)["results"] if each["proof"] == "tensorflow"]
    assert re.search(r"the driver shows 1 GPU, and CUDA does not start \(cuInit\): CUDA_ERROR_\w+$", result["message"])
    assert result["remedy"]


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
        "nvidia_library_version": "8.9.7.29", "nvidia_library_soname": "libcudnn.so.8",
        "nvidia_library_archive_dir": "/opt/tfctl/cudnn/8.9.7.29",
        "nvidia_library_dirs": ["/opt/tfctl/cudnn/8.9.7.29/lib"], "nvidia_library_archive_url": "file:///srv/cudnn.txz",
        "nvidia_library_archive_sha256": hashlib.sha256(data.getvalue()).hexdigest(),
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
    # As an interrupted run leaves it: the file is there, and the cache has not been updated.
    gpus.root("node1", "cd /etc/ld.so.conf.d; mv tfctl-cudnn-* /srv; ldconfig; mv /srv/tfctl-cudnn-* .")
    expected_state.is_violated(expected_state.cudnn, *cudnn)
    assert " failed=0 " in (output := play(gpus.lab, ["cudnn"], given)), output
    expected_state.cudnn(*cudnn)
    output = play(gpus.lab, ["cudnn"], {**given, "nvidia_library_version": "8.9.4.25"})
    assert "libcudnn.so.8 is version 8907; 8904 is required" in output


@pytest.mark.timeout(1200)
def test_reset_removes_the_driver_only_if_it_is_told_to(gpus: Gpus) -> None:
    """It is the last test of node1."""
    node1, inventory = gpus.lab.testinfra("node1"), gpus.lab.folder / "gpus.ini"
    # No receipt lists what a play of the test has installed.
    gpus.root("node1", "apt-get -qy --allow-change-held-packages purge libcublas11 libcudart11.0", 120)
    reset = ("reset", inventory, "--limit", "node1", "--yes", "-o", "json")
    gpus.lab.tfctl(*reset, timeout=600)
    assert not node1.file("/opt/tfctl/stacks/tf2.15").exists
    expected_state.nvidia_driver(node1, "535")
    gpus.root("node1", f": >{INITRAMFS}")
    [host] = json.loads(gpus.lab.tfctl(*reset, "--driver", timeout=600).stdout)["hosts"]
    assert any(each.startswith("package libcuda1") for each in host["removed"]), host
    assert not node1.package("libcuda1").is_installed
    assert [path for path in WRITTEN if node1.file(path).exists] == []
    assert "libcuda1" not in gpus.root("node1", "apt-mark showhold").split()
    assert gpus.root("node1", f"tail -n 1 {INITRAMFS}") == "-u -k all"
    expected_state.is_violated(expected_state.nvidia_driver, node1, "535")


def assert_role_unchanged(lab: Lab, name: str, given: dict[str, Any]) -> None:
    for words in ((), ("--check",)):
        assert re.search("changed=0 .*failed=0 ", output := play(lab, [name], given, *words)), output
