"""NVIDIA's package repository, replaced by a fake on the node: signed, served over HTTP, with packages of the same
names and versions that contain shared libraries. apt, its pins, its holds and the loader are real.
"""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.lab.plays import play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOME = "/usr/local/cuda-12.2"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
CUDA = "int cudaRuntimeGetVersion(int *v) { *v = 12020; return 0; }"
NCCL = "int ncclGetVersion(int *v) { *v = 21605; return 0; }"
CUDNN = "unsigned long cudnnGetVersion(void) { return %d; }"
#: Name, version, and the library in the package with the C source from which it is compiled.
PACKAGES = [
    ("cuda-toolkit-12-2", "12.2.2-1", f"{HOME}/lib64/libcudart.so.12", CUDA),
    ("libcudnn8", "8.9.4.25-1+cuda12.2", f"{LIBRARIES}/libcudnn.so.8", CUDNN % 8904),
    ("libcudnn8", "8.9.7.29-1+cuda12.2", f"{LIBRARIES}/libcudnn.so.8", CUDNN % 8907),
    ("libcudnn8-dev", "8.9.4.25-1+cuda12.2", None, None),
    ("libnccl2", "2.16.5-1+cuda12.0", f"{LIBRARIES}/libnccl.so.2", NCCL),
    ("libnccl2", "2.18.3-1+cuda12.2", f"{LIBRARIES}/libnccl.so.2", NCCL),
    ("libnccl-dev", "2.16.5-1+cuda12.0", None, None),
    ("nvidia-driver-580", "580.95.05-1", None, None),
    ("bash", "99-1", None, None),
]
#: The variables of the roles for tf2.15 on such a host (tests/unit/provision/gpu_hosts.yaml).
LIBRARIES_OF_TF2_15: dict[str, Any] = {
    "cuda_version": "12.2.2", "cuda_packages": ["cuda-toolkit-12-2=12.2.*"], "cuda_soname": "libcudart.so.12",
    "cuda_dirs": [f"{HOME}/lib64"],
    "cudnn_version": "8.9.4.25", "cudnn_soname": "libcudnn.so.8",
    "cudnn_packages": ["libcudnn8=8.9.4.25-1+cuda12*", "libcudnn8-dev=8.9.4.25-1+cuda12*"],
    "nccl_version": "2.16.5", "nccl_soname": "libnccl.so.2",
    "nccl_packages": ["libnccl2=2.16.5-1+cuda12*", "libnccl-dev=2.16.5-1+cuda12*"],
}  # fmt: skip
SIGN = """
apt-get -qq update; apt-get -qqy install gnupg >/dev/null 2>&1
export GNUPGHOME=$(mktemp -d)
gpg --batch --quiet --passphrase '' --quick-generate-key 'A repository of our own' rsa2048 sign never
gpg --armor --export > key.asc
gpg --batch --quiet --clearsign -o InRelease Release
systemd-run --quiet --unit=repository --working-directory=/srv/nvidia python3 -m http.server -b 127.0.0.1 8791
cat key.asc
"""


@dataclass(frozen=True)
class Node:
    """A node with the fake repository at 127.0.0.1, and the file on this machine with its key."""

    lab: Lab
    key: Path

    def root(self, script: str, timeout: float = 120) -> str:
        return self.lab.root_script("node1", script, timeout)

    def provision(self, *words: str, **variables: Any) -> str:
        """Run the four roles in the order in which tfctl runs them; return the output of ansible-playbook."""
        given = {
            "nvidia_repo_url": "http://127.0.0.1:8791/", "nvidia_repo_key_file": str(self.key),
            **LIBRARIES_OF_TF2_15, **variables,
        }  # fmt: skip
        for part in ("cuda", "cudnn", "nccl"):
            own = {name: given.pop(name) for name in [*given] if name.startswith(f"{part}_")}
            given[part] = {name.replace(part, "nvidia_library", 1): value for name, value in own.items()}
        return play(self.lab, ["nvidia_repo", "cuda", "cudnn", "nccl"], given, *words)

    def assert_unchanged(self) -> None:
        """Assert that a second run and a check change nothing, and that the host is in the expected state."""
        for words in ((), ("--check",)):
            assert re.search("changed=0 .*failed=0 ", output := self.provision(*words)), output
        self.assert_expected_state()

    def assert_expected_state(self) -> None:
        """Assert that the host is in the state in which the four roles leave it."""
        host, cudnn, nccl = self.lab.testinfra("node1"), "8.9.4.25-1+cuda12.2", "2.16.5-1+cuda12.0"
        expected_state.nvidia_repo(host, "http://127.0.0.1:8791/", self.key.read_bytes())
        pin = "Package: libcudnn8\nPin: version 8.9.4.25-1+cuda12*\nPin-Priority: 1001\n"
        expected_state.is_file(host, "/etc/apt/preferences.d/tfctl-held-cudnn", 0o644, pin)
        expected_state.cuda(host, {"cuda-toolkit-12-2": "12.2.2-1"}, "libcudart.so.12")
        expected_state.cudnn(host, {"libcudnn8": cudnn, "libcudnn8-dev": cudnn}, "libcudnn.so.8")
        expected_state.nccl(host, {"libnccl2": nccl, "libnccl-dev": nccl}, "libnccl.so.2")


@pytest.fixture(scope="module")
def node(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    lab = Lab(f"{run_name}-nvidia", tmp_path_factory.mktemp("nvidia"))
    lab.up("--nodes", 1)
    try:
        found = Node(lab, tmp_path_factory.mktemp("key") / "key.asc")
        data = repository(tmp_path_factory.mktemp("packages"))
        subprocess.run(lab.ssh("node1", "sudo -n tar -xz -C /srv --no-same-owner"), input=data, check=True, timeout=60)
        _, begin, key = found.root(f"cd /srv/nvidia\n{SIGN}").rpartition("-----BEGIN")
        found.key.write_text(begin + key)
        yield found
    finally:
        lab.down()


@pytest.fixture(scope="module")
def provided(node: Node) -> Node:
    """The node after the four roles have run."""
    output = node.provision()
    assert "failed=0" in output, output
    return node


def repository(folder: Path) -> bytes:
    """Return a tarball of the directory `nvidia`: packages, `Packages`, and `Release`, which is not signed yet."""
    out, listed = folder / "nvidia", []
    out.mkdir()
    for number, (name, version, file, source) in enumerate(PACKAGES):
        tree = folder / str(number)
        fields = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: x <x@example.org>\n"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN/control").write_text(f"{fields}Description: x\n")
        if file and source:
            library = tree / file.lstrip("/")
            library.parent.mkdir(parents=True)
            words = ["gcc", "-shared", "-fPIC", "-s", "-x", "c", "-", "-o", str(library), f"-Wl,-soname,{library.name}"]
            subprocess.run(words, input=source, text=True, check=True, timeout=60)
        package = out / f"{number}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True, stdout=subprocess.DEVNULL, timeout=60
        )
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        size = package.stat().st_size
        listed.append(f"{fields}Filename: ./{package.name}\nSize: {size}\nSHA256: {digest}\nDescription: x\n")
    (out / "Packages").write_text(text := "\n".join(listed))
    digest = hashlib.sha256(text.encode()).hexdigest()
    (out / "Release").write_text(
        "Origin: NVIDIA\nLabel: NVIDIA CUDA\nDate: Sat, 01 Jan 2022 00:00:00 UTC\n"
        f"SHA256:\n {digest} {len(text)} Packages\n"
    )
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(out, "nvidia")
    return data.getvalue()


def test_check_mode_reports_changes_when_the_repository_is_missing(node: Node) -> None:
    assert re.search("changed=[1-9].*failed=0 ", output := node.provision("--check")), output
    assert node.root("ls /usr/share/keyrings /etc/apt/sources.list.d | grep tfctl || true") == ""


def test_packages_are_refused_when_the_repository_is_signed_with_another_key(node: Node) -> None:
    """Whoever runs the mirror cannot add a key: the role installs one of its own files."""
    try:
        output = node.provision(nvidia_repo_key_file="3bf863cc.asc")
        assert "failed=1" in output, output
        updated = node.root("apt-get update 2>&1 || true")
        assert "NO_PUBKEY" in updated and "http://127.0.0.1:8791" in updated, updated
        assert node.root("ls /usr/local | grep cuda || true") == ""
    finally:
        node.root("cd /etc/apt; rm -f sources.list.d/tfctl-* preferences.d/tfctl-* /usr/share/keyrings/tfctl-*")


def test_repository_provides_the_requested_versions_and_nothing_else(provided: Node) -> None:
    provided.assert_unchanged()
    policy = provided.root("apt-cache policy bash nvidia-driver-580")
    assert policy.count("Candidate: (none)") == 1, policy
    assert "Candidate: 99-1" not in policy
    assert f"{HOME}/lib64/libcudart.so.12" in provided.root("ldconfig -p")


@pytest.mark.parametrize(
    "harm",
    [
        "rm /usr/share/keyrings/tfctl-nvidia.asc",
        "chmod 600 /usr/share/keyrings/tfctl-nvidia.asc",
        "rm /etc/apt/preferences.d/tfctl-nvidia",
        "rm /etc/apt/preferences.d/tfctl-held-cudnn",
        "echo 'URIs: http://127.0.0.1:1/' > /etc/apt/sources.list.d/tfctl-nvidia.sources",
        "apt-get -qqy --allow-change-held-packages install libcudnn8=8.9.7.29-1+cuda12.2",
        "apt-get -qqy --allow-change-held-packages remove libnccl2 libnccl-dev",
        "apt-mark unhold libnccl2",
        f"rm {HOME}/lib64/libcudart.so.12",
        f"rm {LIBRARIES}/libcudnn.so.8",
        "rm /etc/ld.so.conf.d/tfctl-cuda-12.2.2.conf; ldconfig",
    ],
)
def test_repository_and_libraries_are_repaired_after_a_manual_change(provided: Node, harm: str) -> None:
    provided.root(harm)
    expected_state.is_violated(provided.assert_expected_state)
    output = provided.provision()
    assert "failed=0" in output and "changed=0 " not in output, output
    provided.assert_unchanged()


def test_repository_that_the_host_already_has_is_used_and_tfctls_entry_is_removed(provided: Node) -> None:
    """With both entries, whose keys have different paths, apt would read no package source."""
    own, key = "/etc/apt/sources.list.d/cuda.list", "/usr/share/keyrings/cuda-archive-keyring.asc"
    provided.root(f"cp /srv/nvidia/key.asc {key}; echo 'deb [signed-by={key}] http://127.0.0.1:8791/ /' > {own}")
    try:
        for changed in ("[1-9]", "0 "):
            assert re.search(f"changed={changed}.*failed=0 ", output := provided.provision()), output
        assert provided.root("ls /etc/apt/sources.list.d | grep tfctl || true") == ""
        assert "127.0.0.1:8791" in provided.root("apt-get -qq update; apt-cache policy libnccl2")
    finally:
        provided.root(f"rm {own} {key}")
    assert "failed=0" in provided.provision()
    provided.assert_unchanged()
