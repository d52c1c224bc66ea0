"""The collection tfctl.cluster on a real node: from its archive, from a checkout and from the wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.unit.doc_blocks import blocks
from tests.unit.provision.playbooks_alone import packages_without_tfctl
from tfctl.provision import ansible

pytestmark = pytest.mark.timeout(600)

NODE = "collection"
ROOT = ansible.data_dir()
#: The page of a stranger who has Ansible and the archive.
PAGE = "docs/howto/roles-in-your-own-play.md"
Playbook = Callable[..., str]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ansible without tfctl."""
    return packages_without_tfctl(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the archive is installed, with the commands of the page."""
    folder = tmp_path_factory.mktemp("archive")
    built = subprocess.run(
        [ROOT / "scripts/collection", "build", folder], capture_output=True, text=True, check=True, timeout=100
    )
    archive = built.stdout.splitlines()[-1]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(folder), "ANSIBLE_HOME": str(folder / "home")}
    install = [sys.executable, "-m", "ansible", "galaxy", "collection", "install", archive, "-p", str(folder)]
    subprocess.run(install, cwd=folder, env=environment, check=True, capture_output=True, timeout=100)
    return folder


@pytest.fixture
def ansible_playbook(node: Lab, packages: Path) -> Playbook:
    def run(playbook: str | Path, *words: str, folder: Path = node.folder, settings: Mapping[str, str]) -> str:
        """Run a playbook on the node; return the output. It must succeed."""
        command = [sys.executable, "-S", "-P", "-m", "ansible", "playbook", "-i", str(node.inventory), str(playbook)]
        environment = {**os.environ, "PYTHONPATH": str(packages), "ANSIBLE_NOCOLOR": "1", **settings}
        done = subprocess.run(
            [*command, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_play_of_a_stranger_uses_three_roles_of_the_archive(
    node: Lab, ansible_playbook: Playbook, collections: Path
) -> None:
    """The site has a role with the short name of one of them."""
    [play] = [block.text for block in blocks(ROOT / PAGE) if block.language == "yaml"]
    assert len(yaml.safe_load(play)[0]["roles"]) == 3
    (node.folder / "play.yml").write_text(play)
    (node.folder / "roles/toolchain/tasks").mkdir(parents=True)
    (node.folder / "roles/toolchain/tasks/main.yml").write_text("- ansible.builtin.fail: {msg: the site's own}\n")
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(collections)}
    node.shell("node1", "sudo rm -f /etc/sudoers.d/tfctl")
    for words in (("--check",), ()):
        assert re.search("changed=[1-9].* failed=0 ", ansible_playbook("play.yml", *words, settings=settings))
    expected_state.job_host(node.testinfra("node1"))
    expected_state.toolchain(node.testinfra("node1"), 12)
    expected_state.python_env_packages(node.testinfra("node1"), "python3.11-venv")
    assert re.search("changed=0 .* failed=0 ", ansible_playbook("play.yml", settings=settings))


def test_the_archive_the_checkout_and_the_wheel_provision_the_same(
    node: Lab, ansible_playbook: Playbook, collections: Path, tmp_path: Path
) -> None:
    """After each has restored what was removed, the next one finds nothing to do."""
    own = ("-e", "tfctl_stack=none")
    archive = {"ANSIBLE_COLLECTIONS_PATH": str(collections)}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=100)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")

    def by_archive() -> int:
        return changes(ansible_playbook("tfctl.cluster.provision", *own, settings=archive))

    def by_checkout() -> int:
        return changes(ansible_playbook("playbooks/provision.yml", *own, folder=ROOT, settings={}))

    def by_wheel() -> int:
        words = [sys.executable, "-P", "-m", "tfctl", "provision", str(node.inventory), "--stack", "none", "-o", "json"]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(json.loads(done.stdout)["changed"])

    by_archive()
    for first, second in ((by_checkout, by_wheel), (by_wheel, by_archive), (by_archive, by_checkout)):
        node.shell("node1", "sudo rm /etc/sudoers.d/tfctl")
        assert first() == 1
        expected_state.job_host(node.testinfra("node1"))
        assert second() == 0


def changes(output: str) -> int:
    found = re.search(r"^node1 .*changed=(\d+) ", output, re.MULTILINE)
    assert found, output
    return int(found[1])
