"""Where ssh would dial and as whom. OpenSSH itself answers wherever more is said than plain options."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tfctl.errors import BadFile, TfctlError
from tfctl.model.host import Host, Ssh
from tfctl.remote.target import Target, resolve

asks_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")


def target(*args: str, **fields: Any) -> Target:
    return resolve(Host("node1", Ssh(**{"host": "10.0.0.1", "args": args, **fields})))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program can be run."""
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.usefixtures("silent")
def test_by_default(home: Path) -> None:
    found = target(user="me")
    assert (found.address, found.port, found.user, found.keys, found.proxy) == ("10.0.0.1", 22, "me", (), None)
    assert found.usual_keys[0] == f"{home}/.ssh/id_ed25519"
    assert found.known_hosts[0] == f"{home}/.ssh/known_hosts"
    assert found.known_hosts[-1] == "/etc/ssh/ssh_known_hosts2"
    assert found.limit == 10


def test_a_user_whom_this_machine_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(TfctlError, match="no user with the ID"):
        target(user="me")


@pytest.mark.usefixtures("silent")
def test_plain_options_need_no_ssh(home: Path) -> None:
    args = (
        "-o", "UserKnownHostsFile=~/kh '/with space/%h-%p'", "-oStrictHostKeyChecking=yes", "-o", "ControlMaster=auto",
        "-o", "Port 2200", "-o", "User=late", "-o", "IdentityFile=/k1", "-o", "IdentityFile=/k2", "-o",
        "HostName=10.9.9.9", "-o", "ConnectTimeout=3",
    )  # fmt: skip
    found = target(*args)
    assert (found.address, found.port, found.user, found.limit) == ("10.9.9.9", 2200, "late", 3)
    assert found.known_hosts[:2] == (f"{home}/kh", "/with space/10.9.9.9-2200")
    assert found.keys == ("/k1", "/k2")


@pytest.mark.usefixtures("silent")
def test_fields_outrank_options() -> None:
    found = target("-o", "Port=1", "-o", "User=late", "-o", "IdentityFile=/k2", port=3, user="own", key="/with space/k")
    assert (found.port, found.user, found.keys) == (3, "own", ("/with space/k",))


@pytest.mark.usefixtures("silent")
def test_an_ssh_config_that_says_nothing_needs_no_ssh(home: Path) -> None:
    (home / ".ssh/config").write_text(
        "# mine\nInclude more*\nHost *\n  SendEnv LANG\n  HashKnownHosts=yes\nHost other 10.0.0.* !10.0.0.1\n  Port 7\n"
    )
    (home / ".ssh/more").write_text('Host "elsewhere" 10.0.0.11\n  User filed\n')
    assert target().port == 22


@asks_ssh
def test_ssh_config(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host 10.0.0.*\n  HostName %h.example\n  Port 2200\n  User filed\n  IdentityFile ~/filed-%p\n"
        "  UserKnownHostsFile /kh1 /kh2\n  HostKeyAlias alias\n  ConnectTimeout 30\n  IdentityAgent /agent\n"
    )
    found = target("-F", str(config))
    assert (found.address, found.port, found.user) == ("10.0.0.1.example", 2200, "filed")
    assert [Path(key).name for key in found.keys] == ["filed-2200"]
    assert found.known_hosts[:2] == ("/kh1", "/kh2")
    assert (found.key_alias, found.limit, found.agent) == ("alias", 30, "/agent")
    found = target("-F", str(config), port=3, user="own", key="/with space/key")
    assert (found.port, found.user, found.keys) == (3, "own", ("/with space/key",))


@pytest.mark.parametrize("said", ["Port 7", "Host *\n  Port 7", "Host x 10.?.0.1\n  Port 7", "Match user me\n Port 7"])
def test_an_ssh_config_that_says_something_is_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    (home / ".ssh/config").write_text("Include more\n")
    (home / ".ssh/more").write_text(said)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Exception, match="ssh is not installed"):
        target()


@asks_ssh
def test_without_named_keys_the_usual_ones_are_not_named() -> None:
    assert target("-F", "none", "-4").keys == ()


@asks_ssh
@pytest.mark.parametrize(
    ("args", "way"),
    [
        (("-J", "ops@gate:2222"), "-W '[10.0.0.1]:22' -- ssh://ops@gate:2222"),
        (("-o", "ProxyJump=one,two"), "-J one -o BatchMode=yes"),
        (("-o", "ProxyJump=none"), None),
        (("-o", "ProxyCommand=nc -q %% %h %p %r"), "nc -q % 10.0.0.1 22 me"),
        (("-o", "ProxyCommand=none"), None),
    ],
)
def test_proxies(args: tuple[str, ...], way: str | None) -> None:
    found = target("-F", "none", *args, user="me").proxy
    assert (found is None) if way is None else (found is not None and way in found)
    # Plain options are read alike without ssh.
    assert args[0] != "-o" or target(*args, user="me").proxy == (found and found.replace("-F none ", ""))


@asks_ssh
def test_what_ssh_refuses(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("nonsense\n")
    with pytest.raises(BadFile, match=r"node1: ssh refuses its arguments or configuration: .*nonsense"):
        target("-F", str(tmp_path / "config"))
    with pytest.raises(BadFile, match="Port 'ssh' is not a number"):
        target("-o", "Port=ssh")


@asks_ssh
def test_fields_agree_with_ssh_itself() -> None:
    """What is read here of plain options is what ssh -G reads of them."""
    args = ("-o", "Port=77", "-oUser=u", "-o", "HostName = 10.3.3.3", "-o", "UserKnownHostsFile=/a /b")
    words = ["ssh", "-F", "none", "-G", *args, "10.0.0.1"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()
    found = target(*args)
    assert {
        f"port {found.port}",
        f"user {found.user}",
        f"hostname {found.address}",
        f"userknownhostsfile {' '.join(found.known_hosts[:2])}",
    } <= set(said)
