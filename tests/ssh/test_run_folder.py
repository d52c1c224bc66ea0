"""The temporary files of a run of Ansible are removed from its hosts, by the connections that it has used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Sshd

from tests.linked_collection import link_collection
from tfctl.provision.run_folder import run_folder

#: A fake sudo. Root's home directory is the one named here; the password, if it is read, is written beside it.
SUDO = """
case " $* " in *" -S "*) head -n 1 > {root}.password ;; esac
while [ "$1" != sh ]; do shift; done
export HOME={root}
exec "$@"
"""


@pytest.fixture
def remote(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of the login user on the server. That of root is beside it."""
    for name in ("~ops", "root"):
        (tmp_path / name / ".ansible/tmp").mkdir(parents=True)
    sshd.command("sudo", SUDO.format(root=tmp_path / "root"))
    monkeypatch.setenv("HOME", str(tmp_path / "~ops"))
    # Ansible uses ~ops, which the shell does not expand, because this machine has no user ops.
    monkeypatch.chdir(tmp_path)
    return tmp_path / "~ops"


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short name: that of a socket must not be longer than 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("password", [None, "open-sesame"])
def test_directories_of_a_run_and_of_runs_that_were_killed_are_removed_from_a_host(
    sshd: Sshd, remote: Path, password: str | None
) -> None:
    """Those of a run that may not have ended stay."""
    temporary = [home / ".ansible/tmp" for home in (remote, remote.with_name("root"))]
    with run_folder(password) as folder:
        connect(sshd, folder.connections / "node1")
        for directory in temporary:
            for name in (folder.path.name, "tfctl-ansible-killed", "tfctl-ansible-running", "ansible-tmp-1"):
                (directory / name).mkdir()
                (directory / name / "wheels").touch()
            os.utime(directory / "tfctl-ansible-killed", (0, 0))
            os.utime(directory / "ansible-tmp-1", (0, 0))
    left = [sorted(each.name for each in directory.iterdir()) for directory in temporary]
    assert left == [["ansible-tmp-1", "tfctl-ansible-running"]] * 2
    assert not folder.path.exists()
    given = remote.with_name("root.password")
    assert (given.read_text() if given.exists() else None) == (f"{password}\n" if password else None)


def connect(sshd: Sshd, control: Path) -> None:
    """Open a connection that ssh shares."""
    words = ["ssh", "-F", "none", "-fNM", "-S", str(control), "-p", str(sshd.port), "-i", str(sshd.key_file)]
    options = ["-o", f"UserKnownHostsFile={sshd.known_hosts}", "-o", "BatchMode=yes"]
    nothing = subprocess.DEVNULL
    subprocess.run([*words, *options, "ops@127.0.0.1"], stdin=nothing, stdout=nothing, timeout=20, check=True)


@pytest.mark.extended
@pytest.mark.parametrize(
    "action",
    [
        {"ansible.builtin.command": f"sleep 4{os.getpid()}"},
        {"ansible.builtin.script": "{{ playbook_dir }}/../begin", "loop": [*range(1000)]},
    ],
    ids=["a long command", "many transfers"],
)
def test_nothing_of_ansible_is_left_on_a_host_after_tfctl_was_killed(
    sshd: Sshd,
    remote: Path,
    tmp_path: Path,
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: dict[str, object],
) -> None:
    """tfctl gets SIGKILL while a task runs. An earlier task has used Ansible's directory on the host."""
    script = {"ansible.builtin.script": f"{tmp_path}/begin"}
    (tmp_path / "begin").write_text("#!/bin/sh\n")
    play = {"hosts": "all", "gather_facts": False, "tasks": [script, {"name": "Go on", **action}]}
    collections = link_collection(tmp_path, {"playbooks/test.yml": json.dumps([play])})
    (tmp_path / "hosts.ini").write_text(
        f"node1 ansible_host=127.0.0.1 ansible_port={sshd.port} ansible_user=ops "
        f"ansible_python_interpreter={sys.executable} ansible_ssh_private_key_file={sshd.key_file} "
        f"ansible_ssh_common_args='-F none -o UserKnownHostsFile={sshd.known_hosts}'\n"
    )
    program = (
        "import sys; from pathlib import Path; from tfctl.provision import ansible\n"
        f"play = ansible.Play('test', Path({str(tmp_path / 'hosts.ini')!r}), collections=Path({str(collections)!r}))\n"
        "print(ansible.run(play, print))\n"
    )
    monkeypatch.setenv("TMPDIR", str(short))
    with subprocess.Popen([sys.executable, "-uc", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        begun = any("name='Go on'" in line for line in child.stdout)
        used = [*(remote / ".ansible/tmp").glob("tfctl-ansible-*")]
        child.kill()
        assert begun and used
    assert child.returncode == -signal.SIGKILL
    ends = time.monotonic() + 30
    while [*short.glob("tfctl-ansible-*"), *(remote / ".ansible/tmp").iterdir()]:
        assert time.monotonic() < ends, [*short.iterdir(), *(remote / ".ansible/tmp").iterdir()]
        time.sleep(0.1)
    shared = subprocess.run(["pgrep", "-f", f"ssh: {short}/"], stdout=subprocess.PIPE, timeout=20)
    assert shared.stdout == b"", "connections that ssh shares"
    assert [*(remote / ".ansible/tmp").iterdir()] == []
