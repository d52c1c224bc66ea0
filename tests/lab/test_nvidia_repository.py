"""NVIDIA's package repository, as far as one of our own can stand for it: served by http, signed, with packages of the
same names and versions that hold real shared libraries. apt, its pins, its holds and the loader are real.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import made
import pytest
from labs import Lab
from plays import play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOME = "/usr/local/cuda-12.2"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
CUDA = "int cudaRuntimeGetVersion(int *v) { *v = 12020; return 0; }"
NCCL = "int ncclGetVersion(int *v) { *v = 21605; return 0; }"
CUDNN = "unsigned long cudnnGetVersion(void) { return %d; }"
#: Name, version, and the file that it has with the C that it is made of.
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
#: What preflight plans for tf2.15 on such a host (tests/unit/provision/gpu_hosts.yaml).
PLANS = {
    "cuda": ("12.2.2", ["cuda-toolkit-12-2=12.2.*"], [f"{HOME}/lib64"], "libcudart.so.12"),
    "cudnn": ("8.9.4.25", ["libcudnn8=8.9.4.25-1+cuda12*", "libcudnn8-dev=8.9.4.25-1+cuda12*"], [], "libcudnn.so.8"),
    "nccl": ("2.16.5", ["libnccl2=2.16.5-1+cuda12*", "libnccl-dev=2.16.5-1+cuda12*"], [], "libnccl.so.2"),
}
SIGN = """
apt-get -qq update; apt-get -qqy install gnupg >/dev/null 2>&1
export GNUPGHOME=$(mktemp -d)
gpg --batch --quiet --passphrase '' --quick-generate-key 'A repository of our own' rsa2048 sign never
gpg --armor --export > key.asc
gpg --batch --quiet --clearsign -o InRelease Release
systemd-run --quiet --unit=repository --working-directory=/srv/nvidia python3 -m http.server -b 127.0.0.1 8791
gpg --with-colons --list-keys | grep ^fpr | cut -d: -f10
"""


@dataclass(frozen=True)
class Node:
    """A node with the repository at 127.0.0.1, and the fingerprint of its key."""

    lab: Lab
    fingerprint: str

    def root(self, script: str, timeout: float = 120) -> str:
        text = base64.b64encode(script.encode()).decode()
        return self.lab.said("node1", f"echo {text} | base64 -d | sudo -n sh -e", timeout)

    def provision(self, *words: str, **source: Any) -> str:
        """The four roles, one after the other, as tfctl runs them; what ansible-playbook says."""
        reached = {
            "uri": "http://127.0.0.1:8791/",
            "key_url": "http://127.0.0.1:8791/key.asc",
            "fingerprint": self.fingerprint,
            **source,
        }
        given: dict[str, Any] = {
            "nvidia_repo_source": {"components": [], "repository": reached, "drivers": False},
            "nvidia_repo_packager": "apt-get",
        }
        for name, (version, packages, folders, soname) in PLANS.items():
            plan = {"method": "repo", "version": version, "exact": True, "packages": packages, "archive": None}
            given[f"{name}_plan"] = {**plan, "folders": folders, "soname": soname}
            given[f"{name}_packager"], given[f"{name}_sources_ready"] = "apt-get", True
        return play(self.lab, ["nvidia_repo", "cuda", "cudnn", "nccl"], given, *words)

    def settled(self) -> None:
        """A second run and a check find nothing to do, and what is asked for is there."""
        for words in ((), ("--check",)):
            assert re.search("changed=0 .*failed=0 ", said := self.provision(*words)), said
        self.as_made()

    def as_made(self) -> None:
        """What the four roles make of it."""
        host, cudnn, nccl = self.lab.testinfra("node1"), "8.9.4.25-1+cuda12.2", "2.16.5-1+cuda12.0"
        made.nvidia_repo(host, "http://127.0.0.1:8791/", host.file("/srv/nvidia/key.asc").content)
        made.cuda(host, {"cuda-toolkit-12-2": "12.2.2-1"}, "libcudart.so.12")
        made.cudnn(host, {"libcudnn8": cudnn, "libcudnn8-dev": cudnn}, "libcudnn.so.8")
        made.nccl(host, {"libnccl2": nccl, "libnccl-dev": nccl}, "libnccl.so.2")


@pytest.fixture(scope="module")
def node(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    lab = Lab(f"{run_name}-nvidia", tmp_path_factory.mktemp("nvidia"))
    lab.up("--nodes", 1)
    try:
        found = Node(lab, "")
        data = repository(tmp_path_factory.mktemp("packages"))
        subprocess.run(lab.ssh("node1", "sudo -n tar -xz -C /srv --no-same-owner"), input=data, check=True, timeout=60)
        yield Node(lab, found.root(f"cd /srv/nvidia\n{SIGN}").splitlines()[-1])
    finally:
        lab.down()


@pytest.fixture(scope="module")
def provided(node: Node) -> Node:
    """The node with the libraries."""
    said = node.provision()
    assert "failed=0" in said, said
    return node


def repository(folder: Path) -> bytes:
    """A tarball with the directory `nvidia`: packages, their list, and its hash, which is yet to be signed."""
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
        f"Origin: NVIDIA\nDate: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n {digest} {len(text)} Packages\n"
    )
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(out, "nvidia")
    return data.getvalue()


def test_another_key_than_nvidias_is_refused(node: Node) -> None:
    said = node.provision(fingerprint="0" * 40)
    assert f"key.asc is key {node.fingerprint}; {'0' * 40} was asked for" in said
    assert node.root("ls /usr/share/keyrings /etc/apt/sources.list.d | grep tfctl || true") == ""


def test_the_libraries_come_in_the_versions_asked_for_and_nothing_else_does(provided: Node) -> None:
    provided.settled()
    policy = provided.root("apt-cache policy bash nvidia-driver-580")
    assert policy.count("Candidate: (none)") == 1, policy
    assert "Candidate: 99-1" not in policy
    assert f"{HOME}/lib64/libcudart.so.12" in provided.root("ldconfig -p")


@pytest.mark.parametrize(
    "harm",
    [
        "rm /usr/share/keyrings/tfctl-nvidia.asc",
        "rm /etc/apt/preferences.d/tfctl-nvidia",
        "echo 'URIs: http://127.0.0.1:1/' > /etc/apt/sources.list.d/tfctl-nvidia.sources",
        "apt-get -qqy --allow-change-held-packages install libcudnn8=8.9.7.29-1+cuda12.2",
        "apt-get -qqy --allow-change-held-packages remove libnccl2 libnccl-dev",
        "apt-mark unhold libnccl2",
        f"rm {HOME}/lib64/libcudart.so.12",
        f"rm {LIBRARIES}/libcudnn.so.8",
        "rm /etc/ld.so.conf.d/tfctl-cuda-12.2.2.conf; ldconfig",
    ],
)
def test_what_was_broken_is_mended(provided: Node, harm: str) -> None:
    provided.root(harm)
    made.seen(provided.as_made)
    said = provided.provision()
    assert "failed=0" in said and "changed=0 " not in said, said
    provided.settled()
