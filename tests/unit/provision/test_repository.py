"""The files that make NVIDIA's repository known to apt and dnf, as the role nvidia_repo renders them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfctl.provision import ansible

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
# Drivers of two origins break each other, so NVIDIA's are taken only where they are what was asked for.
Package: nvidia-* libnvidia-* cuda-drivers* libcuda1* libnvsdm*
Pin: origin "mirror.example"
Pin-Priority: -1

Package: cuda-* libcu* libnccl* libnp* libnv* gds-tools* nsight-*
Pin: origin "mirror.example"
Pin-Priority: 600

# Whatever else the repository has is not taken from it.
Package: *
Pin: origin "mirror.example"
Pin-Priority: 100
""",
}
DNF = {
    "etc/yum.repos.d/tfctl-nvidia.repo": f"""\
# Written by tfctl provision.
[tfctl-nvidia]
name=NVIDIA CUDA
baseurl={BASE}/rhel9/x86_64/
enabled=1
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/tfctl-nvidia.asc
# Drivers of two origins break each other.
excludepkgs=nvidia-* kmod-nvidia* libnvidia-* cuda-drivers*
""",
}


def rendered(folder: Path, packager: str, system: str, drivers: bool) -> dict[str, str]:
    """Render the templates of the role with Ansible; return {path: text}."""
    role = ansible.data_dir() / "roles/nvidia_repo"
    text = "{{ lookup('ansible.builtin.template', '" + str(role) + "/templates/' ~ item ~ '.j2') }}"
    copy = {"content": text, "dest": f"{folder}/{{{{ item | basename }}}}", "mode": "0644"}
    task = {"name": "Render", "ansible.builtin.copy": copy, "loop": "{{ nvidia_repo_files[nvidia_repo_packager] }}"}
    source = {"repository": {"uri": f"{BASE}/{system}/x86_64/"}, "drivers": drivers}
    variables = {
        "nvidia_repo_packager": packager, "nvidia_repo_source": source, "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    play = {
        "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task], "vars": variables,
        "vars_files": [str(role / "vars/main.yml")],
    }  # fmt: skip
    (folder / "play.yml").write_text(json.dumps([play]))
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "play.yml"]
    settings = {**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    names = APT if packager == "apt-get" else DNF
    return {name: (folder / Path(name).name).read_text() for name in names}


@pytest.mark.parametrize(
    ("packager", "system", "files"), [("apt-get", "debian12", APT), ("dnf", "rhel9", DNF)], ids=["apt", "dnf"]
)
def test_repository_files_render_for_apt_and_dnf(
    tmp_path: Path, packager: str, system: str, files: dict[str, str]
) -> None:
    assert rendered(tmp_path, packager, system, drivers=False) == files
    taken = "".join(rendered(tmp_path, packager, system, drivers=True).values())
    assert "-1" not in taken and "excludepkgs" not in taken
