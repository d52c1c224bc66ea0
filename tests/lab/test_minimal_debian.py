"""README's commands on a minimal Debian 12 as the control machine: no Python, no compiler, no cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import minimal
from tests.lab.labs import LABS, Lab
from tests.lab.minimal import Minimal

NODE = "minimal"
#: A Python on the node that counts how often Ansible ran it.
OWN_PYTHON = "/opt/own/python"
MAKE_OWN_PYTHON = (
    f"sudo mkdir /opt/own && printf '#!/bin/sh\\necho run >>/opt/own/count\\nexec /usr/bin/python3 \"$@\"\\n' | "
    f"sudo tee {OWN_PYTHON} >/dev/null && sudo chmod 755 {OWN_PYTHON}"
)

# Each test has limits for its commands; the fixtures download a system and boot a node.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def system(node: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minimal]:
    with minimal.system(tmp_path_factory.mktemp("minimal"), bind=[LABS / node.name]) as found:
        yield found


def test_the_test_command_installs_what_it_needs_and_passes(system: Minimal) -> None:
    missing = system.run("! command -v python3 make pgrep ssh systemd-analyze", timeout=10)
    assert (missing.returncode, missing.stdout) == (0, ""), "the system is not minimal"
    done = system.run("scripts/test tests/unit/provision", timeout=500)
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"^\d+ passed in ", done.stdout, re.MULTILINE), f"some were skipped: {done.stdout[-2000:]}"


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("command", ["scripts/test", "scripts/test --extended"])
def test_every_test_passes_without_a_skip(command: str, system: Minimal) -> None:
    done = system.run(command, timeout=1400)
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"^\d+ passed in ", done.stdout, re.MULTILINE), f"some were skipped: {done.stdout[-2000:]}"


def test_provision_makes_a_bare_node_ready_with_the_python_that_the_inventory_names(node: Lab, system: Minimal) -> None:
    node.shell("node1", MAKE_OWN_PYTHON)
    text = node.inventory.read_text()
    text = re.sub(r"^ansible_python_interpreter=.*$", f"ansible_python_interpreter={OWN_PYTHON}", text, flags=re.M)
    assert OWN_PYTHON in text
    Path(system.root, "root/my.ini").write_text(text)
    prepare = "rm -rf .venv ~/.cache && bash -c '. scripts/lib.sh; test_programs; environment run'"
    prepared = system.run(prepare, timeout=300)
    assert prepared.returncode == 0, prepared.stdout
    assert [*Path(system.root).glob("**/.venv/.tfctl-dev-*")] == [], "the environment is not that of users"
    done = system.run(".venv/bin/tfctl provision /root/my.ini", timeout=400)
    assert done.returncode == 0, done.stdout[-5000:]
    assert set(node.shell("node1", "cat /opt/own/count").splitlines()) == {"run"}
    version = "/opt/tfctl/stacks/tf2.15/bin/python -c 'import tensorflow; print(tensorflow.__version__)' 2>/dev/null"
    assert node.shell("node1", version, timeout=60).startswith("2.15.")
