"""What only the transport openssh does: its process, and what paramiko cannot verify or offer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import asyncssh
import pytest
from loopback import Sshd, run

from tfctl.errors import BadFile, Unreachable
from tfctl.remote import control, openssh_errors
from tfctl.remote.openssh_connection import connect
from tfctl.remote.ssh_config import resolve

WAIT = 20.0


def processes(sshd: Sshd) -> list[int]:
    """Return the processes whose command line names the server's known_hosts: its `ssh`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            # The shell that starts ssh has the same words.
            if str(sshd.known_hosts).encode() in words:
                found.append(int(entry.name))
    return found


def zombies() -> list[str]:
    """Return the children of this process that have ended, but have not been waited for, with the name of ssh or sh."""
    states = [file.read_text() for file in Path("/proc").glob("[0-9]*/stat")]
    return [state for state in states if re.search(rf"\((ssh|sh)\) Z {os.getpid()} ", state)]


def until_no_process(sshd: Sshd) -> None:
    end = time.monotonic() + WAIT
    while processes(sshd):
        assert time.monotonic() < end, processes(sshd)
        time.sleep(0.01)


def certified(sshd_with: Callable[..., Sshd], folder: Path, *options: str) -> Sshd:
    """Return a server whose host key is certified by ssh-keygen, and known only by the authority."""
    for name in ("authority", "host"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True, timeout=WAIT)
    sign = ["ssh-keygen", "-q", "-s", str(folder / "authority"), "-I", "host", "-h", *options, str(folder / "host.pub")]
    subprocess.run(sign, check=True, timeout=WAIT)
    server = sshd_with(server_host_keys=[str(folder / "host")])
    server.trust(asyncssh.read_public_key(folder / "authority.pub"), "@cert-authority")
    return server


def test_a_host_with_a_certificate_is_known_by_its_authority(sshd_with: Callable[..., Sshd], tmp_path: Path) -> None:
    with connect(certified(sshd_with, tmp_path, "-n", "127.0.0.1").host()) as connection:
        assert run(connection, ["echo", "here"]).stdout == b"here\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [(("-n", "other"), "name is not a listed principal"), (("-n", "127.0.0.1", "-V", "20200101:20200102"), "expired")],
    ids=["another name", "expired"],
)
def test_a_host_certificate_that_does_not_hold_is_refused(
    sshd_with: Callable[..., Sshd], tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    server = certified(sshd_with, tmp_path, *options)
    with pytest.raises(Unreachable, match=r"^node1: the host certificate of .* is not valid") as caught:
        connect(server.host())
    assert reason in caught.value.message
    assert "ssh-keygen -s" in caught.value.remedy
    assert server.logins == 0


def test_a_host_without_a_certificate_is_refused_if_only_its_authority_is_known(sshd: Sshd) -> None:
    sshd.trust(sshd.key, "@cert-authority")
    with pytest.raises(Unreachable, match="is not known"):
        connect(sshd.host())


def test_closing_a_connection_ends_its_process_and_removes_its_socket(sshd: Sshd) -> None:
    folder = control.folder()
    assert folder is not None
    with connect(sshd.host()) as connection:
        channel = connection.exec(["cat"])
        assert processes(sshd)
        assert list(folder.glob(f"{os.getpid()}.*"))
    until_no_process(sshd)
    assert not list(folder.glob(f"{os.getpid()}.*"))
    with pytest.raises(Unreachable):
        channel.readline(WAIT)
    assert not zombies()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_ssh_of_a_connection_ends_with_tfctl(sshd: Sshd, number: signal.Signals) -> None:
    script = f"""
import time
from tfctl.remote.openssh_connection import connect
from tfctl.remote.ssh_config import resolve
from tfctl.model.host import Host, Ssh
args = ("-o", "UserKnownHostsFile={sshd.known_hosts}")
with connect(Host("node1", Ssh("127.0.0.1", {sshd.port}, "ops", {str(sshd.key_file)!r}, args))) as connection:
    connection.exec(["cat"])
    print("ready", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert processes(sshd)
        process.send_signal(number)
        process.wait(WAIT)
        until_no_process(sshd)


def test_no_process_is_left_when_a_connection_fails(sshd: Sshd) -> None:
    sshd.hang_in_login = True
    with pytest.raises(Unreachable):
        connect(sshd.host("node1", "-o", "ConnectTimeout=1"))
    sshd.hang_in_login = False
    until_no_process(sshd)


def test_nothing_that_is_sent_is_on_a_command_line(sshd: Sshd) -> None:
    with connect(sshd.host()) as connection, connection.exec(["cat"]) as channel:
        channel.send(b"a secret\n")
        assert channel.readline(WAIT) == b"a secret\n"
        words = b"".join(Path(f"/proc/{process}/cmdline").read_bytes() for process in processes(sshd))
        assert b"secret" not in words and b"cat" not in words.split(b"\0")


def test_known_hosts_is_not_changed(sshd: Sshd) -> None:
    before = sshd.known_hosts.read_text()
    with connect(sshd.host("node1", "-o", "UpdateHostKeys=yes", "-o", "StrictHostKeyChecking=no")) as connection:
        run(connection, ["true"])
    assert sshd.known_hosts.read_text() == before


def test_arguments_for_other_uses_of_ssh_do_not_disturb_the_connection(sshd: Sshd, tmp_path: Path) -> None:
    """Inventories give such arguments to Ansible."""
    args = ("-C", "-o", "ControlMaster=auto", "-o", "ControlPersist=60s", "-S", str(tmp_path / "own"), "-q")
    with connect(sshd.host("node1", *args, "-o", "RequestTTY=force", "-o", "ForwardAgent=yes")) as connection:
        assert run(connection, ["sh", "-c", "echo here; test -t 0"]) == (1, b"here\n", "")
    assert not (tmp_path / "own").exists()


def test_a_login_without_a_key_of_the_inventory_is_made_by_what_ssh_finds(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"Host *\n  IdentityFile {sshd.key_file}\n")
    with connect(sshd.host("node1", "-F", str(tmp_path / "config"), key=None)) as connection:
        assert run(connection, ["echo", "here"]).stdout == b"here\n"


def test_a_key_file_that_others_can_read_is_named(sshd: Sshd) -> None:
    sshd.key_file.chmod(0o644)
    with pytest.raises(Unreachable, match="others can read the key file") as caught:
        connect(sshd.host())
    assert caught.value.remedy == f"chmod 600 {sshd.key_file}"


def test_an_option_that_ssh_does_not_know_is_reported(sshd: Sshd) -> None:
    with pytest.raises(BadFile, match=r"^node1: ssh refuses its arguments or configuration: .*nonsense"):
        connect(sshd.host("node1", "-o", "nonsense=1"))


def test_control_sockets_are_in_a_directory_whose_path_is_short_enough(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert control.folder() == Path(f"/tmp/tfctl-{os.getuid()}")
    connect(sshd.host()).close()
    assert not [*long.iterdir()]


def test_a_missing_ssh_program_is_reported(sshd: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match="ssh is not installed"):
        connect(sshd.host())


def test_a_timeout_that_ssh_itself_notices_is_reported_as_one(sshd: Sshd) -> None:
    log = "debug1: Connection established.\nConnection timed out during banner exchange\n"
    error = openssh_errors.of_ended(resolve(sshd.host()), log)
    assert "accepts the connection but sends nothing" in error.message
