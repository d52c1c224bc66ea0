"""The files that make NVIDIA's repository known to apt and dnf, as the role nvidia_repo renders them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.provision.apt_tree import AptTree
from tfctl.provision import ansible

ROLE = ansible.data_dir() / "roles/nvidia_repo"
#: Whether drivers of the repository are used.
DRIVERS = (False, True)
BASE = "https://mirror.example/compute/cuda/repos"
APT = {
    "etc/apt/sources.list.d/tfctl-nvidia.sources": f"""\
# Written by tfctl provision.
Types: deb
URIs: {BASE}/debian12/x86_64/
Suites: /
Signed-By: /usr/share/keyrings/tfctl-nvidia.asc
""",
    "etc/apt/preferences.d/tfctl-nvidia": """\
# Written by tfctl provision.
# NVIDIA CUDA is the label of its repository. The host of a mirror may have other repositories too.
# Drivers of two origins conflict, so drivers of NVIDIA are used only if they were requested.
Package: nvidia-* libnvidia-* cuda-drivers* libcuda1* libnvsdm*
Pin: release l=NVIDIA CUDA
Pin-Priority: -1

Package: cuda-* libcu* libnccl* libnp* libnv* gds-tools* nsight-*
Pin: release l=NVIDIA CUDA
Pin-Priority: 600

# Nothing else is taken from this repository.
Package: *
Pin: release l=NVIDIA CUDA
Pin-Priority: 100
""",
}
DNF = f"""\
[tfctl-nvidia]
baseurl = {BASE}/rhel9/x86_64/
exclude = nvidia-* kmod-nvidia* libnvidia-* cuda-drivers*
gpgcheck = 1
gpgkey = file:///etc/pki/rpm-gpg/tfctl-nvidia.asc
name = NVIDIA CUDA, added by tfctl provision
"""


def run(folder: Path, *tasks: dict[str, Any], **variables: object) -> None:
    """Run tasks with Ansible, with the variables of the role."""
    play = {
        "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks,
        "vars": {**variables, "ansible_python_interpreter": sys.executable},
        "vars_files": [str(ROLE / "vars/main.yml")],
    }  # fmt: skip
    (folder / "play.yml").write_text(json.dumps([play]))
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "play.yml"]
    settings = {**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr


def test_apt_files_name_the_repository_and_pin_its_packages(tmp_path: Path) -> None:
    text = "{{ lookup('ansible.builtin.template', '" + str(ROLE) + "/templates/' ~ item ~ '.j2') }}"
    for drivers in DRIVERS:
        (tmp_path / str(drivers)).mkdir()
    tasks = [
        {
            "name": "Render",
            "ansible.builtin.copy": {
                "content": text, "dest": f"{tmp_path}/{drivers}/{{{{ item | basename }}}}", "mode": "0644",
            },
            "loop": "{{ nvidia_repo_apt_files }}",
            "vars": {"nvidia_repo_drivers": drivers},
        }
        for drivers in DRIVERS
    ]  # fmt: skip
    run(tmp_path, *tasks, nvidia_repo_packager="apt-get", nvidia_repo_url=f"{BASE}/debian12/x86_64/")
    for drivers in DRIVERS:
        wanted = {name: text.replace("-1", "600") if drivers else text for name, text in APT.items()}
        assert {name: (tmp_path / str(drivers) / Path(name).name).read_text() for name in APT} == wanted


def repository(folder: Path, label: str, version: str, *names: str) -> str:
    """Create a repository with packages of this version; return its line for apt's sources."""
    folder.mkdir()
    fields = f"Version: {version}\nArchitecture: amd64\nMaintainer: x\nDescription: x\nFilename: x\nSize: 1\n"
    text = "\n".join(f"Package: {name}\n{fields}SHA256: {'0' * 64}\n" for name in names)
    (folder / "Packages").write_text(text)
    listed = f"{hashlib.sha256(text.encode()).hexdigest()} {len(text)} Packages"
    date = "Sat, 01 Jan 2022 00:00:00 UTC"
    (folder / "Release").write_text(f"Origin: {label}\nLabel: {label}\nDate: {date}\nSHA256:\n {listed}\n")
    return f"deb [trusted=yes] file:{folder} ./\n"


def test_pins_hold_for_nvidia_alone_where_one_mirror_also_has_the_distribution(tmp_path: Path) -> None:
    """Real apt-get reads both repositories, which have the same host."""
    names = ("bash", "libcuda1")
    sources = repository(tmp_path / "debian", "Debian", "1", *names)
    sources += repository(tmp_path / "nvidia", "NVIDIA CUDA", "99", *names, "cuda-toolkit-12-2", "nvidia-driver-580")
    tree = AptTree(tmp_path / "host", sources)
    (tmp_path / "host/etc/preferences.d/tfctl-nvidia").write_text(APT["etc/apt/preferences.d/tfctl-nvidia"])
    tree.update()
    policy = tree.run("apt-cache", "policy", *names, "cuda-toolkit-12-2", "nvidia-driver-580").stdout
    found = dict(re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (.*)$", policy, re.MULTILINE))
    assert found == {"bash": "1", "libcuda1": "1", "cuda-toolkit-12-2": "99", "nvidia-driver-580": "(none)"}


def test_pins_are_written_before_the_repository_so_that_no_moment_is_without_them() -> None:
    files = yaml.safe_load((ROLE / "vars/main.yml").read_text())["nvidia_repo_apt_files"]
    assert [Path(file).parent.name for file in files] == ["preferences.d", "sources.list.d"]


@pytest.mark.extended
def test_dnf_file_names_the_repository_and_excludes_drivers(tmp_path: Path) -> None:
    for drivers in DRIVERS:
        (tmp_path / str(drivers)).mkdir()
    tasks = [
        {
            "name": "Write",
            "ansible.builtin.include_tasks": str(ROLE / "tasks/dnf.yml"),
            "vars": {"nvidia_repo_drivers": drivers, "nvidia_repo_dnf_dir": f"{tmp_path}/{drivers}"},
        }
        for drivers in DRIVERS
    ]
    run(tmp_path, *tasks, nvidia_repo_packager="dnf", nvidia_repo_url=f"{BASE}/rhel9/x86_64/")
    for drivers in DRIVERS:
        wanted = "".join(line for line in DNF.splitlines(True) if not (drivers and "exclude" in line))
        assert (tmp_path / str(drivers) / "tfctl-nvidia.repo").read_text().strip() == wanted.strip()
