"""Ansible logs in by the rules of tfctl's own connections, here to a real ssh server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import MAX_AUTH_TRIES, Sshd

from tests.linked_collection import link_collection
from tfctl.errors import Exit
from tfctl.provision import ansible
from tfctl.provision.results import HostResult


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An agent with more keys that the server does not know than it lets a client try."""
    socket = tmp_path / "agent"
    done = subprocess.run(["ssh-agent", "-a", str(socket)], capture_output=True, text=True, check=True, timeout=20)
    process = int(done.stdout.partition("SSH_AGENT_PID=")[2].partition(";")[0])
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    for number in range(MAX_AUTH_TRIES + 1):
        key = str(tmp_path / f"other-{number}")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=20)
        subprocess.run(["ssh-add", "-q", key], check=True, timeout=20)
    yield
    os.kill(process, signal.SIGTERM)


def reached(sshd: Sshd, folder: Path, *variables: str) -> HostResult:
    """Run a command on the server by Ansible, and return the result."""
    link_collection(folder, {"playbooks": None, "roles": None})
    task = {"name": "Run a command", "ansible.builtin.raw": "true"}
    play = [{"hosts": "all", "gather_facts": False, "tasks": [task]}]
    (ansible.collection(folder / "collections") / "playbooks/test.yml").write_text(json.dumps(play))
    known = f"-o UserKnownHostsFile={sshd.known_hosts}"
    words = [f"ansible_port={sshd.port}", "ansible_user=ops", f"ansible_ssh_common_args='{known}'", *variables]
    (folder / "hosts.ini").write_text(f"node1 ansible_host=127.0.0.1 {' '.join(words)}\n")
    play_of = ansible.Play("test", folder / "hosts.ini", collections=folder / "collections")
    (host,) = ansible.run(play_of, lambda _: None).hosts
    return host


@pytest.mark.usefixtures("agent")
def test_key_that_the_inventory_names_is_the_only_one_that_is_offered(sshd: Sshd, tmp_path: Path) -> None:
    host = reached(sshd, tmp_path, f"ansible_ssh_private_key_file={sshd.key_file}")
    assert host.exit is Exit.OK, host.reason
    assert sshd.logins == 1


@pytest.mark.usefixtures("agent")
def test_key_of_the_agent_alone_is_found_if_the_inventory_names_none(sshd: Sshd, tmp_path: Path) -> None:
    subprocess.run(["ssh-add", "-q", "-D"], check=True, timeout=20)
    subprocess.run(["ssh-add", "-q", str(sshd.key_file)], check=True, timeout=20)
    assert reached(sshd, tmp_path).exit is Exit.OK
