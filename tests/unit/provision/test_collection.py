"""The repository is the Ansible collection tfctl.cluster: the built archive works where tfctl is not installed."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

import tfctl
from tests.unit.provision.playbooks_alone import ansible_playbook, packages_without_tfctl
from tfctl.model import stacks
from tfctl.provision import ansible

ROOT = ansible.data_dir()
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
GALAXY = [sys.executable, "-m", "ansible", "galaxy", "collection"]
#: What the plugins import, and what they send to hosts or read.
NEEDED = ("node/*", "model/host.py", "model/task.py", "model/stacks/*", "model/strategies/*", "provision/*")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    subprocess.run(
        [*GALAXY, "build", "--output-path", str(folder)], cwd=ROOT, check=True, capture_output=True, timeout=100
    )
    return folder / f"tfctl-cluster-{tfctl.__version__}.tar.gz"


@pytest.fixture(scope="module")
def collections(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed collection."""
    folder = tmp_path_factory.mktemp("collections")
    install = [*GALAXY, "install", "--no-deps", "--collections-path", str(folder), str(archive)]
    environment = {**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_COLLECTIONS_PATH": str(folder)}
    subprocess.run(install, cwd=folder, env=environment, check=True, capture_output=True, timeout=100)
    return folder


def test_version_of_the_collection_is_that_of_tfctl() -> None:
    assert yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"] == tfctl.__version__


def test_archive_contains_the_collection_and_what_its_plugins_import(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = {member.name for member in tar if not member.isdir()}
    listed = subprocess.run(
        ["git", "ls-files", "meta", "playbooks", "plugins", "roles", "tfctl", "tfctl_runtime"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=30,
    ).stdout.split()  # fmt: skip
    pages = {"CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md"}
    own = {name for name in listed if not name.startswith("tfctl/")}
    assert names - {"MANIFEST.json", "FILES.json"} == own | pages | {
        name for name in names if name.startswith("tfctl/")
    }
    part = {name for name in names if name.startswith("tfctl/")}
    assert part <= {*listed} and part >= {f"tfctl/{name}" for name in imported()}
    others = {name for name in part if not any(fnmatchcase(name, f"tfctl/{each}") for each in NEEDED)}
    assert others <= {f"tfctl/{name}" for name in imported()}, "build_ignore in galaxy.yml has to name these"
    assert {name for name in part if name.startswith("tfctl/provision/")} <= {f"tfctl/{name}" for name in imported()}


def imported() -> Iterator[str]:
    """Yield the files of the package that plugins on the control machine import."""
    plugins = [
        path for kind in ("action", "callback", "filter", "lookup") for path in ROOT.glob(f"plugins/{kind}/*.py")
    ]
    lines = [line for path in plugins for line in path.read_text().splitlines() if re.match("from tfctl[. ]", line)]
    program = (
        "import sys\n"
        + "\n".join(lines)
        + "\nprint(*(m.__file__ for m in sys.modules.values() if m.__name__.split('.')[0] == 'tfctl'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    package = Path(tfctl.__file__).parent
    return (str(Path(path).relative_to(package)) for path in done.stdout.split())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ansible, and another tfctl, which must not be used."""
    packages = packages_without_tfctl(tmp_path_factory.mktemp("packages"))
    (packages / "tfctl").mkdir()
    (packages / "tfctl/__init__.py").write_text("raise SystemExit('another tfctl was imported')\n")
    return packages


def test_playbooks_of_the_archive_run_by_their_full_names(collections: Path, packages: Path, tmp_path: Path) -> None:
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(collections)}
    found = ansible_playbook(packages, tmp_path, "tfctl.cluster.explain", "", **settings)
    assert {*found["explained"]["stacks"]} == {*stacks.load()}


@pytest.mark.extended
def test_provision_of_the_archive_decides(collections: Path, packages: Path, tmp_path: Path) -> None:
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(collections)}
    found = ansible_playbook(packages, tmp_path, "tfctl.cluster.provision", "tfctl_stack=tf9", "--check", **settings)
    assert "tfctl_stack: no stack is called 'tf9'" in [fault["message"] for fault in found["faults"]]


#: Variables without which a role does not run, or not on this machine.
GIVEN: dict[str, dict[str, object]] = {
    "nvidia_library": {"nvidia_library_version": "2.21.5", "nvidia_library_soname": "libnccl.so.2"},
    "nvidia_packages": {"nvidia_packages_component": "cuda"},
    "openmpi": {"openmpi_method": "source"},
    "preflight": {"preflight_explain": True},
    "shared_storage": {"shared_storage_dir": "/proc"},
    "ssh_mesh": {"ssh_mesh_user": getpass.getuser() if os.getuid() else "nobody"},
}  # fmt: skip
#: Fakes of a host with systemd, on which every unit is running, and none is one of a job.
PROGRAMS = {
    "systemctl": "case $* in *show*) echo LoadState=loaded; echo ActiveState=active ;; esac",
    "find": f'[ "$1" = /run/systemd/system ] || exec {shutil.which("find")} "$@"',
}


@pytest.mark.extended
def test_each_role_of_the_archive_runs_in_check_mode_beside_roles_of_the_site(
    collections: Path, packages: Path, tmp_path: Path
) -> None:
    """The site has roles with the same short names. Each role has a host of its name, which is this machine."""
    for role in ROLES:
        (tmp_path / f"roles/{role}/tasks").mkdir(parents=True)
        (tmp_path / f"roles/{role}/tasks/main.yml").write_text("- ansible.builtin.fail: {msg: a role of the site}\n")
    (tmp_path / "bin").mkdir()
    for name, script in PROGRAMS.items():
        (tmp_path / f"bin/{name}").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / f"bin/{name}").chmod(0o755)
    here = {"ansible_host": "127.0.0.1", "ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {role: {**here, **GIVEN.get(role, {})} for role in ROLES}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    plays: list[dict[str, Any]] = [{"hosts": role, "roles": [f"tfctl.cluster.{role}"]} for role in ROLES]
    entry = {"name": "tfctl.cluster.nvidia_library", "tasks_from": "nccl"}
    for play in plays:
        if play["hosts"] == "nvidia_library":  # it has one entry point for each library
            play.update(roles=[], tasks=[{"ansible.builtin.include_role": entry}])
    # Ansible ends with a play all of whose hosts have failed: two roles may fail here, and have playbooks of their own.
    alone = ("ssh_mesh", "nvidia_driver")
    for name in ("others", *alone):
        own = [play for play in plays if (play["hosts"] if play["hosts"] in alone else "others") == name]
        (tmp_path / f"{name}.yml").write_text(json.dumps(own))
    environment = {
        **os.environ, "ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_ROLES_PATH": str(tmp_path / "roles"),
        "PYTHONPATH": str(packages), "HOME": str(tmp_path), "ANSIBLE_NOCOLOR": "1",
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    said = ""
    for name in ("others", *alone):
        words = [sys.executable, "-S", "-P", "-m", "ansible", "playbook", "--check", "-i", "hosts.json", f"{name}.yml"]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        said += done.stdout + done.stderr
    failed = [role for role in ROLES if not re.search(rf"^{role} .*unreachable=0 +failed=0", said, re.MULTILINE)]
    if "the GPU is gone from the PCI bus" in said:  # the end of the role, on a machine without a GPU
        failed.remove("nvidia_driver")
    if "has no public host key" in said:  # this machine is no ssh server
        failed.remove("ssh_mesh")
    assert failed == [], said
