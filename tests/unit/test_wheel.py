"""The wheel of tfctl contains everything that works in a checkout."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.unit.provision.playbooks_alone import ansible_playbook, packages_without_tfctl
from tfctl.model import stacks

ROOT = Path(__file__).parents[2]
COLLECTION = "tfctl/_ansible/ansible_collections/tfctl/cluster"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked content of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=100)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_distribution_has_a_name_of_its_own_and_the_command_tfctl(installed: Path) -> None:
    """In package indexes, `tfctl` is another project."""
    [info] = installed.glob("*.dist-info")
    assert info.name.startswith("tfctl_cluster-")
    assert (info / "entry_points.txt").read_text() == "[console_scripts]\ntfctl = tfctl.cli.entry:main\n"
    assert {path.name for path in installed.iterdir()} == {"tfctl", "tfctl_runtime", info.name}


def test_wheel_contains_every_file(installed: Path) -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "tfctl", "tfctl_runtime", "playbooks", "plugins", "roles"],
        capture_output=True, text=True, check=True, timeout=30,
    ).stdout.split()  # fmt: skip
    there = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    places = [(f"{part}/", f"{COLLECTION}/{part}/") for part in ("roles", "playbooks", "plugins")]
    wanted = {*listed}
    for source, target in places:
        wanted = {name.replace(source, target, 1) if name.startswith(source) else name for name in wanted}
    assert wanted
    assert wanted - there == set()


def test_wheel_renders_a_job_and_finds_its_playbooks(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: j\nstrategy: custom\nstack: none\ncommand: run\nroles: {worker: 1}\n")
    (tmp_path / "hosts.ini").write_text("node1 ansible_host=10.0.0.1\n")
    environment = {**os.environ, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(tmp_path)}
    tfctl = [sys.executable, "-P", "-m", "tfctl"]
    done = subprocess.run(
        [*tfctl, "render", "job.yaml", "-i", "hosts.ini"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "# node1/tfctl-j-worker-0.service" in done.stdout
    where = "import tfctl.provision.ansible as a; print(a.__file__)"
    shown = subprocess.run(
        [sys.executable, "-P", "-c", where], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert shown.stdout.startswith(str(installed)), shown


@pytest.mark.extended
def test_wheel_writes_a_new_job_and_checks_it(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(tmp_path)}
    for words in (["schema"], ["init", "new"], ["check", "new/job.yaml"]):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tfctl", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout == "new: no errors; 1 task on 1 host\n"


def test_wheel_provisions_outside_of_a_checkout(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text("away ansible_host=127.0.0.1 ansible_port=9 ansible_user=me\n")
    words = [sys.executable, "-P", "-m", "tfctl", "provision", "hosts.ini", "--stack", "none", "-o", "json"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 4, done.stderr
    [host] = json.loads(done.stdout)["hosts"]
    assert host["unreachable"] and "Connection refused" in host["reason"]


def collections(installed: Path) -> dict[str, str]:
    return {"ANSIBLE_COLLECTIONS_PATH": str((installed / COLLECTION).parents[2])}


@pytest.mark.extended
def test_playbooks_of_the_wheel_run_by_ansible_playbook_alone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    packages = packages_without_tfctl(tmp_path / "packages")
    found = ansible_playbook(packages, tmp_path, "tfctl.cluster.explain", "", **collections(installed))
    assert set(found["explained"]["stacks"]) == set(stacks.load())


#: The plan of a host without a stack.
DECIDE = """
- hosts: all
  gather_facts: false
  vars_files: [vars/roles.yml, vars/manages.yml]
  vars:
    preflight_found: {decision: {operators: [me], output_roots: [/srv/tfctl]}}
  tasks:
    - tfctl.cluster.due: {roles: {job_host: true}, receipts: []}
"""


def test_playbooks_of_the_wheel_decide_which_roles_run_by_ansible_playbook_alone(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "packages").mkdir()
    packages = packages_without_tfctl(tmp_path / "packages")
    (installed / COLLECTION / "playbooks/decide.yml").write_text(DECIDE)
    found = ansible_playbook(packages, tmp_path, "tfctl.cluster.decide", "", **collections(installed))
    assert found["roles"]["job_host"]["reason"] == "job_host has not run here"
    assert "/etc/sudoers.d/tfctl" in found["roles"]["job_host"]["manages"]["paths"]


@pytest.mark.extended
def test_provision_of_the_wheel_decides_by_ansible_playbook_alone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    packages = packages_without_tfctl(tmp_path / "packages")
    settings = collections(installed)
    found = ansible_playbook(packages, tmp_path, "tfctl.cluster.provision", "tfctl_stack=tf9", "--check", **settings)
    faults = {fault["message"]: fault for fault in found["faults"]}
    assert ", ".join(stacks.load()) in faults["tfctl_stack: no stack is called 'tf9'"]["remedy"]


def test_description_of_the_wheel_has_absolute_links_to_existing_files(installed: Path) -> None:
    [metadata] = installed.glob("*.dist-info/METADATA")
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    links = re.findall(r"\]\(([^)]+)\)", str(email.message_from_string(metadata.read_text()).get_payload()))
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    own = f"{urls['Repository']}/blob/main/"
    files = [link.removeprefix(own) for link in links if link.startswith(own)]
    assert len(files) > 10
    assert [name for name in files if not (ROOT / name.partition("#")[0]).is_file()] == []


def test_wheel_contains_examples_and_the_example_inventory(installed: Path) -> None:
    assert (installed / "tfctl/_inventory/example.ini").read_text() == (ROOT / "inventory/example.ini").read_text()
    assert (installed / "tfctl/_examples/digits-ps/job.yaml").is_file()
