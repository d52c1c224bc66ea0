"""How a host is reached and as whom. ssh itself resolves everything beyond plain options."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from loopback import forget_files

from tfctl.errors import BadFile, TfctlError
from tfctl.model.host import Host, Ssh
from tfctl.remote import ssh_config
from tfctl.remote.ssh_config import Server, resolve


def resolved(*args: str, **fields: Any) -> Server:
    return resolve(Host("node1", Ssh(**{"host": "10.0.0.1", "args": args, **fields})))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every attempt to run a program fail."""
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.usefixtures("silent")
def test_a_host_without_settings_gets_the_defaults_of_ssh(home: Path) -> None:
    found = resolved(user="me")
    assert (found.address, found.port, found.user, found.keys, found.proxy) == ("10.0.0.1", 22, "me", (), None)
    assert found.usual_keys[0] == f"{home}/.ssh/id_ed25519"
    assert found.known_hosts[0] == f"{home}/.ssh/known_hosts"
    assert found.known_hosts[-1] == "/etc/ssh/ssh_known_hosts2"
    assert found.limit == 10


def test_a_user_id_without_an_account_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(TfctlError, match="no user with the ID"):
        resolved(user="me")


@pytest.mark.usefixtures("silent")
def test_plain_options_are_resolved_without_running_ssh(home: Path) -> None:
    args = (
        "-o", "UserKnownHostsFile=~/kh '/with space/%h-%p'", "-oStrictHostKeyChecking=yes", "-o", "ControlMaster=auto",
        "-o", "Port 2200", "-o", "User=late", "-o", "IdentityFile=/k1", "-o", "IdentityFile=/k2", "-o",
        "HostName=10.9.9.9", "-o", "ConnectTimeout=3",
    )  # fmt: skip
    found = resolved(*args)
    assert (found.address, found.port, found.user, found.limit) == ("10.9.9.9", 2200, "late", 3)
    assert found.known_hosts[:2] == (f"{home}/kh", "/with space/10.9.9.9-2200")
    assert found.keys == ("/k1", "/k2")


@pytest.mark.usefixtures("silent")
def test_the_fields_of_a_host_override_its_options() -> None:
    found = resolved(
        "-o", "Port=1", "-o", "User=late", "-o", "IdentityFile=/k2", port=3, user="own", key="/with space/k"
    )
    assert (found.port, found.user, found.keys) == (3, "own", ("/with space/k",))


@pytest.mark.usefixtures("silent")
def test_an_ssh_config_that_does_not_affect_the_host_is_resolved_without_running_ssh(home: Path) -> None:
    (home / ".ssh/config").write_text(
        "# mine\nInclude more*\nHost *\n  SendEnv LANG\n  HashKnownHosts=yes\nHost other 10.0.0.* !10.0.0.1\n  Port 7\n"
    )
    (home / ".ssh/more").write_text('Host "elsewhere" 10.0.0.11 \'10.0.0.12\' 10.0.0."1 3"\n  User filed\n')
    assert resolved().port == 22


@pytest.mark.usefixtures("silent")
def test_options_that_tfctl_does_not_read_are_ignored_without_running_ssh(home: Path) -> None:
    (home / ".ssh/config").write_text(
        "Host *\n  ServerAliveInterval 30\n  ControlMaster auto\n  ControlPath ~/.ssh/%C\n  AddKeysToAgent yes\n"
        "  ForwardAgent no\n  Compression yes\n  StrictHostKeyChecking accept-new\n  LogLevel=ERROR\n"
    )
    (home / "ssh_config").write_text("Include more/*.conf\nMatch all\n  SetEnv A=b\n")
    (home / "more").mkdir()
    # As Fedora and its kin have it.
    (home / "more/50-redhat.conf").write_text(
        "Match final all\n\tInclude crypto\n\tGSSAPIAuthentication yes\n\tForwardX11Trusted yes\n"
    )
    (home / "crypto").write_text("Ciphers aes256-gcm@openssh.com\nMACs x\nRequiredRSASize 2048\n")
    assert resolved().port == 22


def test_a_changed_ssh_config_is_read_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".ssh/config").write_text("Host *\n  SendEnv LANG\n")
    monkeypatch.setenv("PATH", "/nowhere")
    assert resolved().port == 22
    (home / ".ssh/config").write_text("Host *\n  Port 7\n")
    forget_files()
    with pytest.raises(Exception, match="ssh is not installed"):
        resolved()


def test_an_ssh_config_is_read_once_a_second_for_all_hosts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".ssh/config").write_text("Host *\n  SendEnv LANG\n")
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for _ in range(3):
        assert resolved().port == 22
    assert ssh_config._conditions.cache_info().misses == 1
    now += 1
    assert resolved().port == 22
    assert ssh_config._conditions.cache_info().misses == 2


@pytest.mark.usefixtures("silent")
def test_match_final_applies_to_the_name_that_the_option_hostname_gives(home: Path) -> None:
    (home / ".ssh/config").write_text("Host 10.9.9.9\n  Port 7\nMatch final all\n  SendEnv LANG\n")
    assert resolved("-o", "HostName=10.9.9.8").port == 22
    with pytest.raises(Exception, match="ssh is not installed"):
        resolved("-o", "HostName=10.9.9.9")


def test_settings_of_an_ssh_config_are_applied(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host 10.0.0.*\n  HostName %h.example\n  Port 2200\n  User filed\n  IdentityFile ~/filed-%p\n"
        "  UserKnownHostsFile /kh1 /kh2\n  HostKeyAlias alias\n  ConnectTimeout 30\n  IdentityAgent /agent\n"
    )
    found = resolved("-F", str(config))
    assert (found.address, found.port, found.user) == ("10.0.0.1.example", 2200, "filed")
    assert [Path(key).name for key in found.keys] == ["filed-2200"]
    assert found.known_hosts[:2] == ("/kh1", "/kh2")
    assert (found.key_alias, found.limit, found.agent) == ("alias", 30, "/agent")
    found = resolved("-F", str(config), port=3, user="own", key="/with space/key")
    assert (found.port, found.user, found.keys) == (3, "own", ("/with space/key",))


@pytest.mark.parametrize(
    "said",
    [
        "Port 7",
        "Host *\n  Port 7",
        "Host x 10.?.0.1\n  Port 7",
        "Host other\nHost\t10.*\n\tPort\t7",
        "Host other\nHost = 10.*\n Port = 7",
        "Host '10.0.0.1'\n Port 7",
        "Host other '10.0.*'\n Port 7",
        "Host 10.0.0.'1'\n Port 7",
        'Host 10.0."0.1"\n Port 7',
        'Host other\n"Host" 10.0.0.1\n Port 7',
        "Host !'10.0.0.1' *\n Port 7",
        "Host * # !10.0.0.1\n Port 7",
        "Host 10.0.0\\.1\n Port 7",
        "Host 'unfinished\n Port 7",
        "Host 10.0.0.1\n# of a host:\x0bHost other\n Port 7",
        "Match user me\n Port 7",
        "Match all\n Port 7",
        "Host other\nMatch final all\n Port 7",
        "Match canonical all\n SendEnv LANG",
        'Include "with space"',
        "Include 'unfinished",
        "Include ~no-such-user/config",
        "Include more",
        "Include conf.d/*",
        "Include",
        "Include %d/.ssh/beside",
        "Include ${HOME}/.ssh/beside",
        r"Include wi\th*",
        "Include be#side",
    ],
)
def test_an_ssh_config_that_may_affect_the_host_is_resolved_by_ssh(
    home: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (home / ".ssh/config").write_text("Include more\n")
    (home / ".ssh/more").write_text(said)
    (home / ".ssh/with space").write_text("Port 7")
    (home / ".ssh/conf.d").mkdir()
    (home / ".ssh/conf.d/50").write_text("Include beside")
    (home / ".ssh/beside").write_text("Port 7")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Exception, match="ssh is not installed"):
        resolved()


def test_files_that_include_each_other_are_resolved_by_ssh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".ssh/config").write_text("Include conf.d/*\n")
    (home / ".ssh/conf.d").mkdir()
    for number in range(6):
        (home / f".ssh/conf.d/{number}").write_text("Include conf.d/*\n")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Exception, match="ssh is not installed"):
        resolved()


def test_the_default_keys_of_ssh_do_not_count_as_named_keys() -> None:
    assert resolved("-F", "none", "-4").keys == ()


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
def test_proxy_options_become_a_proxy_command(args: tuple[str, ...], way: str | None) -> None:
    found = resolved("-F", "none", *args, user="me").proxy
    assert (found is None) if way is None else (found is not None and way in found)
    # Plain options are read alike without ssh.
    assert args[0] != "-o" or resolved(*args, user="me").proxy == (found and found.replace("-F none ", ""))


def test_settings_that_ssh_rejects_are_errors(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("nonsense\n")
    with pytest.raises(BadFile, match=r"node1: ssh refuses its arguments or configuration: .*nonsense"):
        resolved("-F", str(tmp_path / "config"))
    with pytest.raises(BadFile, match="Port 'ssh' is not a number"):
        resolved("-o", "Port=ssh")


def test_ssh_config_with_a_command_that_does_not_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_config, "CONNECT_S", 0.5)
    (tmp_path / "config").write_text('Match exec "exec sleep 9 >/dev/null 2>&1"\n')
    with pytest.raises(BadFile, match=r"node1: `ssh -G 10\.0\.0\.1` ran longer than 0\.5 s and was killed") as caught:
        resolved("-F", str(tmp_path / "config"))
    assert "Match exec" in caught.value.remedy


def test_resolved_settings_agree_with_ssh_itself() -> None:
    """tfctl and `ssh -G` read the same from plain options."""
    args = ("-o", "Port=77", "-oUser=u", "-o", "HostName = 10.3.3.3", "-o", "UserKnownHostsFile=/a /b")
    words = ["ssh", "-F", "none", "-G", *args, "10.0.0.1"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=10).stdout.splitlines()
    found = resolved(*args)
    assert {
        f"port {found.port}",
        f"user {found.user}",
        f"hostname {found.address}",
        f"userknownhostsfile {' '.join(found.known_hosts[:2])}",
    } <= set(said)
