"""README's section "Your first job" on two bare nodes that share no directory.

The test runs the lines of the section that begin with "$ ", in this order, as they are. Only the machines and the
directory of known keys are those of the test.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.labs import TFCTL, Lab, sharing_nothing

README = Path(__file__).parents[2] / "README.md"
#: The addresses of the machines in README and in the inventory that `tfctl init` writes.
ADDRESSES = {"node1": "192.0.2.11", "node2": "192.0.2.12"}
KEYS = "~/.ssh"
#: Horovod is built if the cache of this machine does not contain it.
LIMIT_S = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * LIMIT_S)]


@pytest.fixture
def pair(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with sharing_nothing(f"{run_name}-readme", tmp_path_factory.mktemp("readme"), 2) as found:
        yield found


def test_first_job_of_the_readme_trains_on_machines_that_share_no_directory(pair: Lab, tmp_path: Path) -> None:
    lines = commands()
    printed = {lines[0]: run(lines[0], pair, tmp_path)}
    enter_machines(tmp_path / "digits/hosts.ini", pair, tmp_path)
    printed |= {line: run(line, pair, tmp_path) for line in lines[1:]}
    [preflight] = (text for line, text in printed.items() if line.startswith("tfctl preflight"))
    assert "the hosts share no directory of tfctl_output_roots" in preflight
    one_host, two_hosts = (text for line, text in printed.items() if line.startswith("tfctl start"))
    for text in (one_host, two_hosts):
        accuracy = re.search(r"worker/0 │ test accuracy (\d\.\d+)", text)
        assert accuracy and float(accuracy[1]) > 0.85, text[-2000:]
    assert "worker/1 │ rank 1: done" in two_hosts


def commands() -> list[str]:
    """Return the commands of the section; the first one writes the inventory."""
    section = README.read_text().partition("## Your first job\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\$ (.*)$", section, re.MULTILINE)
    assert found[0] == "tfctl init digits"
    return found


def enter_machines(inventory: Path, lab: Lab, folder: Path) -> None:
    """Edit the inventory as README asks: the machines, their user, and the key for the login."""
    hosts = lab.hosts()
    login = hosts["node1"]
    text = lab.with_addresses(inventory.read_text(), ADDRESSES)
    text = text.replace("#ansible_user=ubuntu", f"ansible_user={login['ansible_user']}")
    text = text.replace("#ansible_ssh_private_key_file=~/.ssh/id_ed25519", "\n".join([
        f"ansible_ssh_private_key_file={login['ansible_ssh_private_key_file']}",
        f"ansible_ssh_common_args='-o UserKnownHostsFile={folder}/ssh/known_hosts'",
    ]))  # fmt: skip
    assert "known_hosts" in text
    inventory.write_text(text)


def run(line: str, lab: Lab, folder: Path) -> str:
    """Run a line in a shell; return its stdout and stderr. It must succeed."""
    done = subprocess.run(
        ["bash", "-c", lab.with_addresses(line, ADDRESSES).replace(KEYS, f"{folder}/ssh")],
        cwd=folder, env={**os.environ, "PATH": f"{TFCTL.parent}:{os.environ['PATH']}"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout}"
    return done.stdout
