"""Reach a host, verify its key and log in. Every error names the host and a remedy."""

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
from typing import Any

import asyncssh
import pytest
from loopback import Impostor, Relay, Sshd, forget_files, public, run
from paramiko import Transport

from tfctl.errors import BadFile, Exit, Unreachable
from tfctl.model.host import Host, Ssh
from tfctl.remote.known_hosts import fingerprint, known
from tfctl.remote.refusals import not_connected
from tfctl.remote.ssh_config import resolve
from tfctl.remote.transport import connect


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


#: Run the test once with each transport.
both = pytest.mark.usefixtures("transport")


def write_key(key: asyncssh.SSHKey, file: Path, *args: Any, **options: Any) -> None:
    """Write a private key as ssh wants it: unreadable for others."""
    key.write_private_key(file, *args, **options)
    file.chmod(0o600)


#: Long enough for a login on a machine that is busy with other things.
SHORT = ("-o", "ConnectTimeout=3")


# -- reaching a host


@both
def test_a_refused_connection_names_the_host_and_how_to_start_sshd(sshd: Sshd) -> None:
    sshd.close()
    error = refusal(sshd.host())
    assert error.message == f"node1: 127.0.0.1:{sshd.port} refuses the connection"
    assert "systemctl start ssh" in error.remedy


@both
@pytest.mark.parametrize(
    ("greeting", "hang_up", "said"),
    [
        (b"", False, "accepts the connection but sends nothing for 3 s"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False, "answers, then falls silent for 3 s"),
        (b"", True, "closes the connection before it sends anything"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", True, "broke off the key exchange"),
        (b"220 mail ready\r\n" * 200, True, "is not sshd; it sends: 220 mail ready"),
    ],
    ids=["silent", "greets and hangs", "hangs up", "greets and hangs up", "another service"],
)
def test_a_port_without_a_working_sshd_is_described(sshd: Sshd, greeting: bytes, hang_up: bool, said: str) -> None:
    with contextlib.closing(Impostor(greeting, hang_up)) as impostor:
        began = time.monotonic()
        error = refusal(sshd.host("node1", *SHORT, port=impostor.port))
        assert time.monotonic() - began < 20
    assert error.message.startswith(f"node1: 127.0.0.1:{impostor.port} {said}")


@both
def test_a_host_that_falls_silent_during_login_is_unreachable_in_time(sshd: Sshd) -> None:
    sshd.hang_in_login = True
    error = refusal(sshd.host("node1", *SHORT))
    sshd.hang_in_login = False
    assert "does not answer the login within 3 s" in error.message


@both
def test_a_host_that_falls_silent_after_login_is_unreachable_in_time(sshd: Sshd, relay: Relay) -> None:
    sshd.port = relay.port
    sshd.trust(sshd.key)
    with connect(sshd.host("node1", *SHORT)) as connection:
        relay.frozen = True
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"^node1: no answer to `true` within 3 s"):
            connection.exec(["true"])
        assert time.monotonic() - began < 20


@both
def test_an_address_that_never_answers_is_unreachable_in_time(sshd: Sshd, full: int) -> None:
    error = refusal(sshd.host("node1", *SHORT, port=full))
    assert f"127.0.0.1:{full} does not answer within 3 s" in error.message


@pytest.fixture
def full() -> Iterator[int]:
    """Return a port whose queue of connections is full, so that it never answers another one."""
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
def test_network_errors_of_the_kernel_are_reported_with_a_remedy(number: int, said: str) -> None:
    """The errors of a network that the loopback interface cannot produce."""
    error = not_connected(resolve(Host("node1", Ssh("10.0.0.1", 22, "ops"))), OSError(number, os.strerror(number)))
    assert error.message.startswith("node1: ")
    assert said in error.message
    assert error.remedy


@both
@pytest.mark.parametrize("name", ["no-such-host.invalid", "two..dots"])
def test_an_unknown_host_name_is_reported_with_a_remedy(sshd: Sshd, name: str) -> None:
    error = refusal(sshd.host(host=name))
    assert f"the name '{name}' is not found" in error.message
    assert "ansible_host=" in error.remedy


def test_an_address_of_an_unsupported_family_is_skipped(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name may have an IPv6 address although the kernel was started without IPv6."""
    first = [(socket.AF_APPLETALK, socket.SOCK_STREAM, 0, "", ("::1", sshd.port, 0, 0))]
    known = socket.getaddrinfo("127.0.0.1", sshd.port, type=socket.SOCK_STREAM)
    monkeypatch.setattr("tfctl.remote.dial.socket.getaddrinfo", lambda *_, **__: first + known)
    assert works(sshd.host())
    monkeypatch.setattr("tfctl.remote.dial.socket.getaddrinfo", lambda *_, **__: first)
    assert "not supported" in refusal(sshd.host()).message


@both
def test_a_slow_network_does_not_break_the_login(sshd: Sshd, relay: Relay) -> None:
    relay.delay = 0.02
    sshd.port = relay.port
    sshd.trust(sshd.key)
    assert works(sshd.host())


def test_connections_leave_no_thread_and_print_nothing(
    sshd: Sshd, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), contextlib.closing(Impostor(b"SSH-2.0-x\r\nnonsense" * 100)) as impostor:
        refusal(sshd.host("node1", *SHORT, port=impostor.port))
        assert works(sshd.host())
        sshd.known_hosts.write_text("")
        forget_files()
        refusal(sshd.host())
    limit = time.monotonic() + 5
    while (
        left := [each for each in threading.enumerate() if isinstance(each, Transport)]
    ) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not left
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("paramiko")]


# -- host keys


@both
def test_an_unknown_host_key_is_refused_before_login(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    error = refusal(sshd.host())
    assert f"host key of 127.0.0.1:{sshd.port} is not known: {sshd.key.get_fingerprint()}" in error.message
    assert f"ssh-keyscan -t ed25519 -p {sshd.port} 127.0.0.1 >> {sshd.known_hosts}" in error.remedy
    assert sshd.known_hosts.read_text() == ""
    assert sshd.logins == 0


@both
def test_the_suggested_command_for_an_unknown_host_key_works(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    command = refusal(sshd.host()).remedy.splitlines()[-1]
    subprocess.run(command, shell=True, check=True, stderr=subprocess.DEVNULL, timeout=20)
    forget_files()
    assert works(sshd.host())


@both
def test_a_changed_host_key_is_refused_before_login(sshd: Sshd) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    sshd.trust(other)
    error = refusal(sshd.host())
    assert "has changed" in error.message
    assert f"{sshd.known_hosts}:1 holds {other.get_fingerprint()}" in error.message
    assert f"the host shows {sshd.key.get_fingerprint()}" in error.message
    assert f"ssh-keygen -R '[127.0.0.1]:{sshd.port}' -f {sshd.known_hosts}" in error.remedy
    assert sshd.logins == 0


@both
def test_a_host_key_of_another_type_counts_as_changed(sshd: Sshd) -> None:
    sshd.trust(asyncssh.generate_private_key("ecdsa-sha2-nistp256"))
    assert "has changed" in refusal(sshd.host()).message


@both
@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
def test_a_server_with_several_host_keys_is_asked_for_the_known_one(sshd_with: Callable[..., Sshd], kind: str) -> None:
    keys = [asyncssh.generate_private_key(name) for name in ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")]
    server = sshd_with(server_host_keys=keys)
    server.trust(next(key for key in keys if key.get_algorithm() == kind))
    assert works(server.host())


@both
def test_a_revoked_host_key_is_refused(sshd: Sshd) -> None:
    sshd.known_hosts.write_text(f"@revoked * {public(sshd.key)}\n[127.0.0.1]:{sshd.port} {public(sshd.key)}\n")
    assert "marks @revoked" in refusal(sshd.host()).message


@both
def test_a_line_is_no_comment_if_its_names_begin_with_a_hash_behind_a_marker(sshd: Sshd) -> None:
    key = public(sshd.key)
    sshd.known_hosts.write_text(f"@revoked #node9,[127.0.0.1]:* {key}\n[127.0.0.1]:{sshd.port} {key}\n")
    assert "marks @revoked" in refusal(sshd.host()).message


@pytest.mark.parametrize("marker", ["@unknown", "@revoked @cert-authority", "@cert-authority @x,"])
def test_a_line_with_an_unknown_marker_or_two_does_not_count(marker: str, sshd: Sshd) -> None:
    """Nor does it keep the lines for the bare name from counting."""
    key = public(sshd.key)
    sshd.known_hosts.write_text(f"{marker} [127.0.0.1]:* {key}\n@revoked 127.0.0.1 {key}\n".replace(", ", ","))
    assert "marks @revoked" in refusal(sshd.host()).message


def hashed(name: str) -> str:
    salt = os.urandom(20)
    return "|1|" + "|".join(
        base64.b64encode(part).decode() for part in (salt, hmac.digest(salt, name.encode(), "sha1"))
    )


@both
@pytest.mark.parametrize(
    "names",
    ["{name}", "other,{name}", "{hashed}", "[127.0.0.*]:*", "!127.0.0.2,127.0.0.?", "127.0.0.1"],
    ids=["name", "list", "hashed", "pattern with port", "pattern", "bare name"],
)
def test_known_hosts_names_a_host_in_any_form_that_ssh_accepts(sshd: Sshd, names: str) -> None:
    name = f"[127.0.0.1]:{sshd.port}"
    line = f"{names.format(name=name, hashed=hashed(name))} {public(sshd.key)} a comment\n"
    sshd.known_hosts.write_text(f"# comment\n\nnonsense\n{line}")
    assert works(sshd.host())


def test_the_hashed_name_of_each_host_is_found_on_its_line(tmp_path: Path) -> None:
    file, names = tmp_path / "hashed", [*(f"node{number}" for number in range(9)), "[node9]:2200"]
    args = ("-o", f"UserKnownHostsFile={file}", "-o", "GlobalKnownHostsFile=/dev/null")
    file.write_text("".join(f"{hashed(name)} ssh-ed25519 AAAA\n" for name in names))
    servers = [
        resolve(Host(f"node{number}", Ssh(f"node{number}", port, args=args)))
        for number, port in enumerate([*[22] * 9, 2200])
    ]
    for _ in range(2):
        assert [[entry.number for entry in known(server)] for server in servers] == [[line] for line in range(1, 11)]


@both
@pytest.mark.parametrize("names", ["[127.0.0.1]:*,![127.0.0.*]:*", "127.0.0.2", "[127.0.0.1]:1", "127x0.0.1"])
def test_known_hosts_lines_for_other_hosts_do_not_match(sshd: Sshd, names: str) -> None:
    sshd.known_hosts.write_text(f"{names} {public(sshd.key)}\n")
    assert "is not known" in refusal(sshd.host()).message


@both
def test_a_host_key_is_looked_up_by_its_alias(sshd: Sshd) -> None:
    sshd.known_hosts.write_text(f"node1 {public(sshd.key)}\n")
    assert works(sshd.host("node1", "-o", "HostKeyAlias=node1"))


@both
def test_host_keys_are_checked_even_if_the_arguments_disable_it(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    host = sshd.host("node1", "-oStrictHostKeyChecking=no", "-o", "StrictHostKeyChecking no")
    assert "is not known" in refusal(host).message


@both
def test_the_known_hosts_files_of_user_and_machine_are_read(sshd: Sshd, home: Path, tmp_path: Path) -> None:
    (home / ".ssh/known_hosts").write_text(sshd.known_hosts.read_text())
    assert works(sshd.host(args=()))
    (tmp_path / "shared").write_text(sshd.known_hosts.read_text())
    args = ("-o", "UserKnownHostsFile=none", "-o", f"GlobalKnownHostsFile=/nowhere {tmp_path / 'shared'}")
    assert works(sshd.host(args=args))


@both
def test_known_hosts_is_read_again_after_a_change(sshd: Sshd) -> None:
    trusted = sshd.known_hosts.read_text()
    sshd.known_hosts.write_text("")
    refusal(sshd.host())
    sshd.known_hosts.write_text(trusted)
    forget_files()
    assert works(sshd.host())


def test_fingerprints_are_written_as_openssh_writes_them(sshd: Sshd) -> None:
    assert fingerprint(sshd.key.public_data) == sshd.key.get_fingerprint()


# -- logging in


@both
def test_a_refused_key_is_named_with_the_command_that_installs_it(sshd: Sshd, tmp_path: Path) -> None:
    write_key(asyncssh.generate_private_key("ssh-ed25519"), tmp_path / "stranger")
    error = refusal(sshd.host(key=str(tmp_path / "stranger")))
    assert f"rejects user ops with {tmp_path / 'stranger'}" in error.message
    assert f"ssh-copy-id -i {tmp_path / 'stranger'} -p {sshd.port} ops@127.0.0.1" in error.remedy


NOLOGIN = '"System is booting up. Unprivileged users are not permitted to log in yet. Please come back later."'


@both
@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (f"Welcome! Your account is watched.\n{NOLOGIN}\n", "/run/nologin exists on node1: wait"),
        ("Your account has expired; please contact your system administrator.\n", "chage -E -1 USER"),
    ],
)
def test_a_user_who_may_not_log_in_is_not_told_to_install_a_key(sshd: Sshd, said: str, remedy: str) -> None:
    sshd.not_let_in = said
    error = refusal(sshd.host())
    assert error.message.endswith(f"does not let user ops log in: {said.splitlines()[-1]}")
    assert remedy in error.remedy


@both
def test_a_host_with_a_password_in_the_inventory_is_refused(sshd: Sshd) -> None:
    with pytest.raises(BadFile, match=r"^node1: the inventory has a password \(ansible_password\)") as caught:
        connect(sshd.host(password=True))
    assert "remove the password from the inventory" in caught.value.remedy
    assert not sshd.connections


@both
def test_a_missing_key_file_is_named(sshd: Sshd) -> None:
    assert "the key file /no/such/key does not exist" in refusal(sshd.host(key="/no/such/key")).message


@both
def test_a_file_without_a_private_key_is_named(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hello\n")
    (tmp_path / "key").chmod(0o600)
    assert f"{tmp_path / 'key'} holds no private key" in refusal(sshd.host(key=str(tmp_path / "key"))).message


def test_login_without_any_key_prints_the_command_that_creates_one(sshd: Sshd) -> None:
    error = refusal(sshd.host(key=None))
    assert "no ssh key to log in" in error.message
    assert "ansible_ssh_private_key_file" in error.remedy


def test_the_usual_key_files_are_tried_if_none_is_named(sshd: Sshd, home: Path) -> None:
    shutil.copy(sshd.key_file, home / ".ssh/id_ed25519")
    assert works(sshd.host(key=None))


@both
def test_the_second_key_logs_in_if_the_first_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    write_key(asyncssh.generate_private_key("ssh-ed25519"), tmp_path / "stranger")
    files = [word for file in (tmp_path / "stranger", sshd.key_file) for word in ("-o", f"IdentityFile={file}")]
    assert works(sshd.host("node1", *files, key=None))


@both
@pytest.mark.parametrize("kind", ["ssh-rsa", "ecdsa-sha2-nistp256"])
def test_rsa_and_ecdsa_keys_log_in(sshd_with: Callable[..., Sshd], tmp_path: Path, kind: str) -> None:
    key = asyncssh.generate_private_key(kind)
    write_key(key, tmp_path / "key", "pkcs1-pem")
    key.write_public_key(tmp_path / "key.pub")
    assert works(sshd_with(authorized_client_keys=str(tmp_path / "key.pub")).host(key=str(tmp_path / "key")))


@both
def test_a_user_certificate_logs_in(sshd_with: Callable[..., Sshd], tmp_path: Path) -> None:
    authority, key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    write_key(key, tmp_path / "key")
    authority.generate_user_certificate(key, "ops", principals=["ops"]).write_certificate(tmp_path / "key-cert.pub")
    (tmp_path / "authorized").write_text(f"cert-authority {public(authority)}\n")
    assert works(sshd_with(authorized_client_keys=str(tmp_path / "authorized")).host(key=str(tmp_path / "key")))


@both
@pytest.mark.parametrize("kind", ["openssh", "pkcs8-pem"])
def test_a_key_with_a_passphrase_is_reported_with_the_ssh_add_command(sshd: Sshd, tmp_path: Path, kind: str) -> None:
    key = asyncssh.read_private_key(sshd.key_file)
    rounds = {"rounds": 50} if kind == "openssh" else {}
    write_key(key, tmp_path / "locked", kind, passphrase="secret", **rounds)
    error = refusal(sshd.host(key=str(tmp_path / "locked")))
    assert f"{tmp_path / 'locked'} needs a passphrase, and no agent holds the key" in error.message
    assert f"ssh-add {tmp_path / 'locked'}" in error.remedy


@pytest.fixture
def agent(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run a real ssh-agent that holds a key unknown to the server, and then the one that it knows."""
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as process:
        try:
            monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
            limit = time.monotonic() + 10
            # Its socket is there a moment before it listens. 2: no agent; 1: it holds no key yet (ssh-add(1)).
            while subprocess.run(["ssh-add", "-l"], capture_output=True, check=False, timeout=10).returncode == 2:
                assert time.monotonic() < limit
                time.sleep(0.01)
            write_key(asyncssh.generate_private_key("ssh-ed25519"), tmp_path / "other")
            subprocess.run(["ssh-add", "-q", str(tmp_path / "other"), str(sshd.key_file)], check=True, timeout=10)
            yield path
        finally:
            process.terminate()


@both
@pytest.mark.usefixtures("agent")
def test_a_key_of_the_agent_logs_in(sshd: Sshd) -> None:
    assert works(sshd.host(key=None))
    assert sshd.logins == 1


@both
@pytest.mark.usefixtures("agent")
def test_the_fifth_key_of_an_agent_with_seven_logs_in(sshd: Sshd, tmp_path: Path) -> None:
    strangers = [tmp_path / f"stranger{number}" for number in range(6)]
    for file in strangers:
        write_key(asyncssh.generate_private_key("ssh-ed25519"), file)
    subprocess.run(["ssh-add", "-q", "-D"], check=True, timeout=10)
    files = [str(file) for file in (*strangers[:4], sshd.key_file, *strangers[4:])]
    subprocess.run(["ssh-add", "-q", *files], check=True, timeout=10)
    assert works(sshd.host(key=None))
    sshd.may_log_in = False
    assert "rejects user ops" in refusal(sshd.host(key=None)).message


@both
@pytest.mark.usefixtures("agent")
def test_a_key_with_a_passphrase_logs_in_if_the_agent_holds_it(sshd: Sshd, tmp_path: Path) -> None:
    key = asyncssh.read_private_key(sshd.key_file)
    write_key(key, tmp_path / "locked", passphrase="secret", rounds=50)
    key.write_public_key(tmp_path / "locked.pub")
    assert works(sshd.host(key=str(tmp_path / "locked")))


def test_the_agent_is_used_only_as_the_options_allow(sshd: Sshd, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no ssh key" in refusal(sshd.host("node1", "-o", "IdentitiesOnly=yes", key=None)).message
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert works(sshd.host("node1", "-o", f"IdentityAgent={agent}", key=None))


@both
@pytest.mark.usefixtures("agent")
def test_a_public_key_file_logs_in_with_that_key_of_the_agent(sshd: Sshd, tmp_path: Path) -> None:
    only = ("-o", "IdentitiesOnly=yes")
    assert works(sshd.host("node1", *only, "-o", f"IdentityFile={sshd.key_file}.pub", key=None))
    assert works(sshd.host(key=f"{sshd.key_file}.pub"))
    # The agent's first key would be refused, and is offered only if it is the one that is named.
    asyncssh.read_private_key(tmp_path / "other").write_public_key(tmp_path / "other.pub")
    assert "rejects user ops" in refusal(sshd.host("node1", *only, key=f"{tmp_path / 'other.pub'}")).message


def test_a_public_key_file_whose_private_key_no_agent_holds_is_named(sshd: Sshd) -> None:
    error = refusal(sshd.host(key=f"{sshd.key_file}.pub"))
    assert f"{sshd.key_file}.pub is a public key, and no agent holds its private key" in error.message
    assert f"ssh-add {sshd.key_file})" in error.remedy


@both
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("args", [(), ("-o", "IdentitiesOnly=yes")])
def test_a_named_key_logs_in_when_only_the_agent_holds_it(sshd: Sshd, args: tuple[str, ...]) -> None:
    sshd.key_file.unlink()
    assert works(sshd.host("node1", *args))


@both
@pytest.mark.usefixtures("agent")
def test_a_missing_key_without_a_public_part_may_be_any_of_the_agent_unless_identities_only(sshd: Sshd) -> None:
    assert works(sshd.host(key="/no/such/key"))
    only = sshd.host("node1", "-o", "IdentitiesOnly=yes", key="/no/such/key")
    assert "the key file /no/such/key does not exist" in refusal(only).message


# -- jump hosts and proxy commands


@both
@pytest.mark.parametrize("way", [("-J", "bastion"), ("-o", "ProxyJump=ops@bastion")])
def test_a_host_is_reached_through_a_jump_host(
    sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]], way: tuple[str, ...]
) -> None:
    server, config = bastion
    assert works(sshd.host("node1", *config, *way))
    assert server.forwards == [("127.0.0.1", sshd.port)]


@both
def test_a_jump_host_that_is_down_is_reported(sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]]) -> None:
    server, config = bastion
    server.close()
    error = refusal(sshd.host("node1", *config, "-J", "bastion"))
    assert "the proxy command ended" in error.message
    assert "ssh" in error.remedy and "bastion" in error.remedy


@both
def test_a_jump_host_with_an_unknown_key_is_refused(sshd: Sshd, bastion: tuple[Sshd, tuple[str, ...]]) -> None:
    server, config = bastion
    server.known_hosts.write_text("")
    assert "Host key verification failed" in refusal(sshd.host("node1", *config, "-J", "bastion")).message


PIPE = "bash -c 'exec 3<>/dev/tcp/%h/%p; cat <&3 & exec cat >&3'"


@both
def test_a_host_is_reached_through_a_proxy_command(sshd: Sshd) -> None:
    assert works(sshd.host("node1", "-o", f"ProxyCommand={PIPE}"))


def test_a_proxy_command_that_cannot_be_started_is_reported(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert "No space left on device" in refusal(sshd.host("node1", "-o", "ProxyCommand=cat")).message


@both
def test_the_message_of_a_failed_proxy_command_is_reported(sshd: Sshd) -> None:
    error = refusal(sshd.host("node1", "-o", "ProxyCommand=sh -c 'echo no way there >&2'"))
    assert "the proxy command ended: no way there" in error.message


@both
def test_a_failed_proxy_command_is_not_printed_because_it_may_hold_a_password(sshd: Sshd) -> None:
    error = refusal(sshd.host("node1", "-o", "ProxyCommand=sh -c 'echo refused >&2' hunter2 -W %h:%p jump"))
    assert "the proxy command ended: refused" in error.message
    assert "hunter2" not in str(error)
    assert "correct ProxyCommand in the inventory (ansible_ssh_common_args)" in error.remedy


@both
def test_arguments_that_ssh_rejects_are_reported(sshd: Sshd) -> None:
    with pytest.raises(BadFile, match=r"node1: ssh refuses its arguments or configuration: .*nonsense"):
        connect(sshd.host("node1", "-o", "nonsense"))
