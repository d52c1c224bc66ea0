"""Reaching, trusting and entering a host; every refusal names the host and says what to type."""

from __future__ import annotations

import base64
import contextlib
import errno
import hmac
import logging
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncssh
import pytest
from loopback import Impostor, Relay, Sshd, public, run
from paramiko import Transport

from tfctl.errors import BadFile, Exit, Unreachable
from tfctl.model.host import Host, Ssh
from tfctl.remote.dial import not_connected
from tfctl.remote.known_hosts import fingerprint
from tfctl.remote.ssh import connect
from tfctl.remote.target import resolve


def refusal(host: Host) -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        connect(host).close()
    error = caught.value
    assert error.exit == Exit.UNREACHABLE
    assert error.message.startswith(f"{host.name}: ")
    assert "\n" not in error.message
    assert error.remedy
    return error


def works(host: Host) -> bool:
    with connect(host) as connection:
        return run(connection, ["echo", "here"]).stdout == b"here\n"


LIMIT_1 = ("-o", "ConnectTimeout=1")


# -- reaching


def test_refused(sshd: Sshd) -> None:
    sshd.close()
    error = refusal(sshd.host())
    assert error.message == f"node1: 127.0.0.1:{sshd.port} refuses the connection"
    assert "systemctl start ssh" in error.remedy


@pytest.mark.parametrize(
    ("greeting", "hang_up", "said"),
    [
        (b"", False, "takes the connection and says nothing for 1 s"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False, "answers, then falls silent for 1 s"),
        (b"", True, "closes the connection before it says anything"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", True, "broke off the key exchange"),
        (b"220 mail ready\r\n" * 200, True, "is not sshd; it says: 220 mail ready"),
    ],
    ids=["silent", "greets and hangs", "hangs up", "greets and hangs up", "another service"],
)
def test_not_a_working_sshd(sshd: Sshd, greeting: bytes, hang_up: bool, said: str) -> None:
    with contextlib.closing(Impostor(greeting, hang_up)) as impostor:
        began = time.monotonic()
        error = refusal(sshd.host("node1", *LIMIT_1, port=impostor.port))
        assert time.monotonic() - began < 2.5
    assert error.message.startswith(f"node1: 127.0.0.1:{impostor.port} {said}")


def test_silent_during_login(sshd: Sshd) -> None:
    sshd.hang_in_login = True
    error = refusal(sshd.host("node1", *LIMIT_1))
    sshd.hang_in_login = False
    assert "does not answer the login within 1 s" in error.message


def test_silent_after_login(sshd: Sshd, relay: Relay) -> None:
    sshd.port = relay.port
    sshd.trust(sshd.key)
    with connect(sshd.host("node1", *LIMIT_1)) as connection:
        relay.frozen = True
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"^node1: sshd has not started `true` within 1 s"):
            connection.exec(["true"])
        assert time.monotonic() - began < 2.5


def test_address_that_swallows_everything(sshd: Sshd, full: int) -> None:
    error = refusal(sshd.host("node1", *LIMIT_1, port=full))
    assert f"127.0.0.1:{full} does not answer within 1 s" in error.message


@pytest.fixture
def full() -> Iterator[int]:
    """A port whose queue of connections is full: another gets no answer at all."""
    import socket

    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        for _ in range(3):
            caller = held.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
        yield port


@pytest.mark.parametrize(
    ("number", "said"), [(errno.EHOSTUNREACH, "no route to 10.0.0.1:22"), (errno.ETIMEDOUT, "Connection timed out")]
)
def test_what_the_kernel_says(number: int, said: str) -> None:
    """Of a network that loopback does not have."""
    error = not_connected(resolve(Host("node1", Ssh("10.0.0.1", 22, "ops"))), OSError(number, os.strerror(number)))
    assert error.message.startswith("node1: ")
    assert said in error.message
    assert error.remedy


@pytest.mark.parametrize("name", ["no-such-host.invalid", "two..dots"])
def test_name_that_is_not_found(sshd: Sshd, name: str) -> None:
    error = refusal(sshd.host(host=name))
    assert f"the name '{name}' is not found" in error.message
    assert "ansible_host=" in error.remedy


def test_a_network_that_this_machine_has_not(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a name with an IPv6 address, where the kernel was started without IPv6."""
    first = [(socket.AF_APPLETALK, socket.SOCK_STREAM, 0, "", ("::1", sshd.port, 0, 0))]
    known = socket.getaddrinfo("127.0.0.1", sshd.port, type=socket.SOCK_STREAM)
    monkeypatch.setattr("tfctl.remote.dial.socket.getaddrinfo", lambda *_, **__: first + known)
    assert works(sshd.host())
    monkeypatch.setattr("tfctl.remote.dial.socket.getaddrinfo", lambda *_, **__: first)
    assert "not supported" in refusal(sshd.host()).message


def test_slow_network(sshd: Sshd, relay: Relay) -> None:
    relay.delay = 0.02
    sshd.port = relay.port
    sshd.trust(sshd.key)
    assert works(sshd.host())


def test_nothing_is_left_behind_and_nothing_is_printed(
    sshd: Sshd, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), contextlib.closing(Impostor(b"SSH-2.0-x\r\nnonsense" * 100)) as impostor:
        refusal(sshd.host("node1", *LIMIT_1, port=impostor.port))
        assert works(sshd.host())
        sshd.known_hosts.write_text("")
        refusal(sshd.host())
    limit = time.monotonic() + 5
    while (
        left := [each for each in threading.enumerate() if isinstance(each, Transport)]
    ) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not left
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("paramiko")]


# -- trusting


def test_unknown_key(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    error = refusal(sshd.host())
    assert f"host key of 127.0.0.1:{sshd.port} is not known: {sshd.key.get_fingerprint()}" in error.message
    assert f"ssh-keyscan -t ed25519 -p {sshd.port} 127.0.0.1 >> {sshd.known_hosts}" in error.remedy
    assert sshd.known_hosts.read_text() == ""
    assert sshd.logins == 0


@pytest.mark.skipif(shutil.which("ssh-keyscan") is None, reason="no ssh-keyscan here")
def test_the_remedy_for_an_unknown_key_works(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    command = refusal(sshd.host()).remedy.splitlines()[-1]
    subprocess.run(command, shell=True, check=True, stderr=subprocess.DEVNULL, timeout=20)
    assert works(sshd.host())


def test_changed_key(sshd: Sshd) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    sshd.trust(other)
    error = refusal(sshd.host())
    assert "has changed" in error.message
    assert f"{sshd.known_hosts}:1 holds {other.get_fingerprint()}" in error.message
    assert f"the host shows {sshd.key.get_fingerprint()}" in error.message
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {sshd.known_hosts}" in error.remedy
    assert sshd.logins == 0


def test_key_of_another_type_is_a_changed_key(sshd: Sshd) -> None:
    sshd.trust(asyncssh.generate_private_key("ecdsa-sha2-nistp256"))
    assert "has changed" in refusal(sshd.host()).message


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
def test_server_with_several_keys_shows_the_known_one(sshd_with: Callable[..., Sshd], kind: str) -> None:
    keys = [asyncssh.generate_private_key(name) for name in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")]
    server = sshd_with(server_host_keys=keys)
    server.trust(next(key for key in keys if key.get_algorithm() == kind))
    assert works(server.host())


def test_revoked_key(sshd: Sshd) -> None:
    sshd.known_hosts.write_text(f"@revoked * {public(sshd.key)}\n[127.0.0.1]:{sshd.port} {public(sshd.key)}\n")
    assert "marks @revoked" in refusal(sshd.host()).message


def test_certificate_authority_is_no_host_key(sshd: Sshd) -> None:
    sshd.trust(sshd.key, "@cert-authority")
    assert "is not known" in refusal(sshd.host()).message


def hashed(name: str) -> str:
    salt = os.urandom(20)
    return "|1|" + "|".join(
        base64.b64encode(part).decode() for part in (salt, hmac.digest(salt, name.encode(), "sha1"))
    )


@pytest.mark.parametrize(
    "names",
    ["{name}", "other,{name}", "{hashed}", "[127.0.0.*]:*", "!127.0.0.2,127.0.0.?", "127.0.0.1"],
    ids=["name", "list", "hashed", "pattern with port", "pattern", "bare name"],
)
def test_ways_to_name_a_host(sshd: Sshd, names: str) -> None:
    name = f"[127.0.0.1]:{sshd.port}"
    line = f"{names.format(name=name, hashed=hashed(name))} {public(sshd.key)} a comment\n"
    sshd.known_hosts.write_text(f"# comment\n\nnonsense\n{line}")
    assert works(sshd.host())


@pytest.mark.parametrize("names", ["[127.0.0.1]:*,![127.0.0.*]:*", "127.0.0.2", "[127.0.0.1]:1", "127x0.0.1"])
def test_ways_to_name_another_host(sshd: Sshd, names: str) -> None:
    sshd.known_hosts.write_text(f"{names} {public(sshd.key)}\n")
    assert "is not known" in refusal(sshd.host()).message


def test_host_key_alias(sshd: Sshd) -> None:
    sshd.known_hosts.write_text(f"node1 {public(sshd.key)}\n")
    assert works(sshd.host("node1", "-o", "HostKeyAlias=node1"))


def test_switching_the_check_off_is_not_honoured(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    host = sshd.host("node1", "-oStrictHostKeyChecking=no", "-o", "StrictHostKeyChecking no")
    assert "is not known" in refusal(host).message


def test_known_hosts_of_the_user_and_of_the_machine(sshd: Sshd, home: Path, tmp_path: Path) -> None:
    (home / ".ssh/known_hosts").write_text(sshd.known_hosts.read_text())
    assert works(sshd.host(args=()))
    (tmp_path / "shared").write_text(sshd.known_hosts.read_text())
    args = ("-o", "UserKnownHostsFile=none", "-o", f"GlobalKnownHostsFile=/nowhere {tmp_path / 'shared'}")
    assert works(sshd.host(args=args))


def test_known_hosts_is_read_again_when_written(sshd: Sshd) -> None:
    trusted = sshd.known_hosts.read_text()
    sshd.known_hosts.write_text("")
    refusal(sshd.host())
    sshd.known_hosts.write_text(trusted)
    assert works(sshd.host())


def test_fingerprint_is_that_of_openssh(sshd: Sshd) -> None:
    assert fingerprint(sshd.key.public_data) == sshd.key.get_fingerprint()


# -- entering


def test_key_that_is_not_let_in(sshd: Sshd, tmp_path: Path) -> None:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "stranger")
    error = refusal(sshd.host(key=str(tmp_path / "stranger")))
    assert f"does not let user ops in with {tmp_path / 'stranger'}" in error.message
    assert f"ssh-copy-id -i {tmp_path / 'stranger'} -p {sshd.port} ops@127.0.0.1" in error.remedy


def test_key_file_that_is_not_there(sshd: Sshd) -> None:
    assert "the key file /no/such/key does not exist" in refusal(sshd.host(key="/no/such/key")).message


def test_key_file_that_is_none(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hello\n")
    assert f"{tmp_path / 'key'} holds no private key" in refusal(sshd.host(key=str(tmp_path / "key"))).message


def test_no_key_at_all(sshd: Sshd) -> None:
    error = refusal(sshd.host(key=None))
    assert "no ssh key to log in" in error.message
    assert "ansible_ssh_private_key_file" in error.remedy


def test_usual_key(sshd: Sshd, home: Path) -> None:
    shutil.copy(sshd.key_file, home / ".ssh/id_ed25519")
    assert works(sshd.host(key=None))


def test_key_named_by_an_argument_after_one_that_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "stranger")
    files = [word for file in (tmp_path / "stranger", sshd.key_file) for word in ("-o", f"IdentityFile={file}")]
    assert works(sshd.host("node1", *files, key=None))


@pytest.mark.parametrize("kind", ["ssh-rsa", "ecdsa-sha2-nistp256"])
def test_other_kinds_of_keys(sshd_with: Callable[..., Sshd], tmp_path: Path, kind: str) -> None:
    key = asyncssh.generate_private_key(kind)
    key.write_private_key(tmp_path / "key", "pkcs1-pem")
    key.write_public_key(tmp_path / "key.pub")
    assert works(sshd_with(authorized_client_keys=str(tmp_path / "key.pub")).host(key=str(tmp_path / "key")))


def test_user_certificate(sshd_with: Callable[..., Sshd], tmp_path: Path) -> None:
    authority, key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    key.write_private_key(tmp_path / "key")
    authority.generate_user_certificate(key, "ops", principals=["ops"]).write_certificate(tmp_path / "key-cert.pub")
    (tmp_path / "authorized").write_text(f"cert-authority {public(authority)}\n")
    assert works(sshd_with(authorized_client_keys=str(tmp_path / "authorized")).host(key=str(tmp_path / "key")))


@pytest.mark.parametrize("kind", ["openssh", "pkcs8-pem"])
def test_locked_key(sshd: Sshd, tmp_path: Path, kind: str) -> None:
    key = asyncssh.read_private_key(sshd.key_file)
    rounds = {"rounds": 50} if kind == "openssh" else {}
    key.write_private_key(tmp_path / "locked", kind, passphrase="secret", **rounds)
    error = refusal(sshd.host(key=str(tmp_path / "locked")))
    assert f"{tmp_path / 'locked'} needs a passphrase, and no agent holds the key" in error.message
    assert f"ssh-add {tmp_path / 'locked'}" in error.remedy


@pytest.fixture
def agent(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real agent that holds a key nobody knows, and the server's."""
    if shutil.which("ssh-agent") is None:
        pytest.skip("no ssh-agent here")
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as process:
        try:
            monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
            limit = time.monotonic() + 10
            # Its socket is there a moment before it listens. 2: no agent; 1: it holds no key yet (ssh-add(1)).
            while subprocess.run(["ssh-add", "-l"], capture_output=True, check=False, timeout=10).returncode == 2:
                assert time.monotonic() < limit
                time.sleep(0.01)
            asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "other")
            (tmp_path / "other").chmod(0o600)
            sshd.key_file.chmod(0o600)
            subprocess.run(["ssh-add", "-q", str(tmp_path / "other"), str(sshd.key_file)], check=True, timeout=10)
            yield path
        finally:
            process.terminate()


@pytest.mark.usefixtures("agent")
def test_agent(sshd: Sshd) -> None:
    assert works(sshd.host(key=None))
    assert sshd.logins == 1


@pytest.mark.usefixtures("agent")
def test_agent_holds_a_locked_key(sshd: Sshd, tmp_path: Path) -> None:
    key = asyncssh.read_private_key(sshd.key_file)
    key.write_private_key(tmp_path / "locked", passphrase="secret", rounds=50)
    key.write_public_key(tmp_path / "locked.pub")
    assert works(sshd.host(key=str(tmp_path / "locked")))


def test_agent_is_left_alone(sshd: Sshd, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no ssh key" in refusal(sshd.host("node1", "-o", "IdentitiesOnly=yes", key=None)).message
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert works(sshd.host("node1", "-o", f"IdentityAgent={agent}", key=None))


# -- by way of others


@pytest.fixture
def bastion(sshd_with: Callable[..., Sshd], tmp_path: Path) -> tuple[Sshd, tuple[str, ...]]:
    """A jump host, and the words for an ssh_config that knows it."""
    if shutil.which("ssh") is None:
        pytest.skip("no ssh here")
    server = sshd_with("bastion")
    server.key_file.chmod(0o600)
    (tmp_path / "config").write_text(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {server.port}\n  User jumper\n  IdentityFile {server.key_file}\n"
        f"  UserKnownHostsFile {server.known_hosts}\n"
    )
    return server, ("-F", str(tmp_path / "config"))


@pytest.mark.parametrize("way", [("-J", "bastion"), ("-o", "ProxyJump=ops@bastion")])
def test_jump_host(sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]], way: tuple[str, ...]) -> None:
    server, config = bastion
    assert works(sshd.host("node1", *config, *way))
    assert server.forwards == [("127.0.0.1", sshd.port)]


def test_jump_host_down(sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]]) -> None:
    server, config = bastion
    server.close()
    error = refusal(sshd.host("node1", *config, "-J", "bastion"))
    assert "the way there broke off" in error.message
    assert "ssh" in error.remedy and "bastion" in error.remedy


def test_jump_host_unknown(sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]]) -> None:
    server, config = bastion
    server.known_hosts.write_text("")
    assert "Host key verification failed" in refusal(sshd.host("node1", *config, "-J", "bastion")).message


PIPE = "bash -c 'exec 3<>/dev/tcp/%h/%p; cat <&3 & exec cat >&3'"


def test_proxy_command(sshd: Sshd) -> None:
    assert works(sshd.host("node1", "-o", f"ProxyCommand={PIPE}"))


def test_proxy_command_that_this_machine_cannot_run(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert "No space left on device" in refusal(sshd.host("node1", "-o", "ProxyCommand=cat")).message


def test_proxy_command_that_fails(sshd: Sshd) -> None:
    error = refusal(sshd.host("node1", "-o", "ProxyCommand=echo no way there >&2; exit 1"))
    assert "the way there broke off: no way there" in error.message


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_words_that_ssh_refuses(sshd: Sshd) -> None:
    with pytest.raises(BadFile, match=r"node1: ssh refuses its arguments or configuration: .*nonsense"):
        connect(sshd.host("node1", "-o", "nonsense"))
