"""What only the transport of a local host does: it runs the node part here, as root, by sudo, or by sg and sudo."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from loopback import answering, ask, run
from node_tree import wait_until

from tfctl.errors import PreflightFailed, Unreachable
from tfctl.model.host import LOCAL, Host, Ssh
from tfctl.node import names, wire
from tfctl.remote.local_connection import OPERATORS, lacks_group
from tfctl.remote.session import ask_node, open_session
from tfctl.remote.transport import connect
from tfctl.remote.tunnel import Tunnel

HERE = Host("here", Ssh("here", transport=LOCAL))
WAIT = 20.0
REQUEST = wire.ShowRequest()
#: A node part that says in its only message how it was run.
ANSWER = 'read -r request; echo "$0 $*" >>{log}; id -un >>{log}; echo \'{{"show": {{"jobs": [], "time": 1.0}}}}\'\n'


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    """tfctl runs as an ordinary user, whose name is that of the account that runs the tests."""
    user = pwd.getpwuid(0)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)


def program(file: Path, script: str) -> Path:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def in_group(monkeypatch: pytest.MonkeyPatch, *, session: bool) -> None:
    """Let the user be an operator; ``session``: since before the session began."""
    monkeypatch.setattr(grp, "getgrnam", lambda name: grp.struct_group((name, "x", 4321, [])))
    monkeypatch.setattr(os, "getgrouplist", lambda *_: [100, 4321])
    monkeypatch.setattr(os, "getgroups", lambda: [100, 4321] if session else [100])


def asked(log: Path) -> list[str]:
    """Ask the node part, and return what it has noted."""
    with connect(HERE) as connection:
        assert ask_node(connection, REQUEST, wire.Shown, WAIT).time == 1.0
    return log.read_text().splitlines()


def test_root_runs_the_node_part_itself(tmp_path: Path, bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = program(tmp_path / "tfctl-node", ANSWER.format(log=tmp_path / "log"))
    program(bin_dir / "sudo", "exit 9")
    monkeypatch.setattr(names, "PROGRAM", str(node))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert asked(tmp_path / "log")[0] == f"{node} "


@pytest.mark.usefixtures("ordinary")
def test_an_ordinary_user_runs_it_by_sudo(tmp_path: Path, bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bin_dir / "sudo", ANSWER.format(log=tmp_path / "log"))
    program(bin_dir / "sg", "exit 9")
    in_group(monkeypatch, session=True)
    assert asked(tmp_path / "log")[0] == f"{bin_dir}/sudo -n {names.PROGRAM}"


@pytest.mark.usefixtures("ordinary")
def test_a_session_that_lacks_the_group_of_operators_gets_it_by_sg(
    tmp_path: Path, bin_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As right after provisioning, which has added the user to the group."""
    program(bin_dir / "sg", f'echo "$@" >{tmp_path}/sg; exec /bin/sh -c "$3"')
    program(bin_dir / "sudo", ANSWER.format(log=tmp_path / "log"))
    in_group(monkeypatch, session=False)
    assert asked(tmp_path / "log")[0] == f"{bin_dir}/sudo -n {names.PROGRAM}"
    assert (tmp_path / "sg").read_text() == f"{OPERATORS} -c sudo -n {names.PROGRAM}\n"


@pytest.mark.usefixtures("ordinary")
def test_such_a_session_without_sg_is_told_to_log_in_again(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_group(monkeypatch, session=False)
    monkeypatch.setenv("PATH", str(bin_dir))
    with pytest.raises(PreflightFailed, match=r"^here: root is in the group tfctl-admin, but this session") as caught:
        connect(HERE)
    assert caught.value.remedy == "log in again"


@pytest.mark.usefixtures("ordinary")
def test_a_user_whom_sudo_does_not_permit_it_is_told_to_provision(bin_dir: Path) -> None:
    program(bin_dir / "sudo", "echo 'sudo: a password is required' >&2; exit 1")
    with connect(HERE) as connection, pytest.raises(PreflightFailed, match="here: sudo does not permit this user"):
        ask_node(connection, REQUEST, wire.Shown, WAIT)


@pytest.mark.usefixtures("ordinary")
def test_a_machine_without_sudo_is_told_to_install_it(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bin_dir))
    with connect(HERE) as connection, pytest.raises(PreflightFailed, match="here: sudo is not installed"):
        ask_node(connection, REQUEST, wire.Shown, WAIT)


def test_a_machine_without_the_node_part_is_told_to_provision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "PROGRAM", str(tmp_path / "tfctl-node"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with (
        connect(HERE) as connection,
        pytest.raises(PreflightFailed, match=r"tfctl's part .* is not installed") as caught,
    ):
        ask_node(connection, REQUEST, wire.Shown, WAIT)
    assert caught.value.remedy == "tfctl provision INVENTORY --tags job_host"


@pytest.mark.parametrize(
    ("of_user", "of_session", "lacks"),
    [([100], [100], False), ([100, 7], [100], True), ([100, 7], [100, 7], False), ([100], [100, 7], False)],
)
def test_a_session_lacks_a_group_that_its_user_got_later(
    of_user: list[int], of_session: list[int], lacks: bool
) -> None:
    assert lacks_group(7, of_user, of_session) is lacks


def test_a_process_has_no_terminal_and_nothing_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a terminal, sudo would take it over, and Ctrl-C would reach the node part before tfctl."""
    monkeypatch.setenv("PYTHONPATH", "/evil")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    before = os.umask(0o077)
    try:
        with connect(HERE) as connection:
            said = run(connection, ["sh", "-c", "ps -o sid= -p $$; echo $$; pwd; umask; env; : </dev/tty"])
    finally:
        os.umask(before)
    session, process, folder, mask, *environment = said.stdout.decode().split("\n")
    assert session.strip() == process
    assert (folder, mask) == ("/", "0022")
    found = {line.partition("=")[0] for line in environment if line}
    assert found <= {"PATH", "LC_ALL", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "SHLVL", "_"}
    assert "/dev/tty" in said.stderr


#: A client that opens a channel, says so, and waits to be killed.
CLIENT = """
import sys, time
from tfctl.model.host import Host, Ssh
from tfctl.remote.transport import connect
channel = connect(Host("here", Ssh("here", transport="local"))).exec(["sh", "-c", f"cat; touch {sys.argv[1]}"])
print("ready", flush=True)
time.sleep(60)
"""


def test_a_client_that_is_killed_leaves_the_end_of_its_input_to_the_node_part(tmp_path: Path) -> None:
    """That is the dead-man's switch of a start."""
    mark = tmp_path / "ended"
    client = subprocess.Popen([sys.executable, "-c", CLIENT, str(mark)], stdout=subprocess.PIPE)
    with client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        client.kill()
    wait_until(mark.exists, timeout=WAIT)


def test_closing_the_connection_ends_its_channels_but_kills_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "undone"
    connection = connect(HERE)
    channel = connection.exec(["sh", "-c", f"echo up; cat; sleep 0.3; touch {mark}"])
    assert channel.readline(WAIT) == b"up\n"
    assert connection.alive
    connection.close()
    assert not connection.alive
    wait_until(mark.exists, timeout=WAIT)


def test_a_port_is_reached_without_ssh() -> None:
    with (
        answering(bytes.upper) as port,
        connect(HERE) as connection,
        Tunnel(lambda: connection, port, [0], print) as tunnel,
    ):
        assert tunnel.local != port
        assert ask(tunnel.local, b"one") == b"ONE"
    with connect(HERE) as connection, pytest.raises(Unreachable, match=rf"here: nothing listens on port {port} of its"):
        connection.dial(port)


@pytest.mark.usefixtures("ordinary")
def test_several_sessions_run_at_once(tmp_path: Path, bin_dir: Path) -> None:
    program(bin_dir / "sudo", ANSWER.format(log=tmp_path / "log"))
    with connect(HERE) as connection:
        sessions = [open_session(connection, REQUEST) for _ in range(20)]
        for session in sessions:
            assert session.expect(wire.Shown, WAIT).time == 1.0
            session.close()
