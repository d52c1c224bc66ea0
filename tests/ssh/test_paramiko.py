"""What only the transport paramiko does: its import, its rekeying, and its limits."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from collections.abc import Callable

import asyncssh
import pytest
from loopback import Sshd, run

from tfctl.errors import Unreachable
from tfctl.remote.paramiko_connection import connect


def test_importing_the_transport_does_not_import_what_paramiko_can_do_without() -> None:
    """They take half of the time of the import."""
    spared = ["invoke", "importlib.metadata"]
    code = f"import sys, tfctl.remote.paramiko_connection; print([name for name in {spared} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_host_that_leaves_a_rekey_unanswered_counts_as_lost(sshd: Sshd) -> None:
    with connect(sshd.host()) as connection, connection.exec(["cat"]) as channel:
        transport = connection._transport
        transport.clear_to_send_timeout = 0.2
        transport.clear_to_send.clear()  # as from the first message of a rekey to the last
        with pytest.raises(Unreachable, match=r"^node1: the connection broke while `cat` ran"):
            channel.send(b"text")
        assert not connection.alive


def test_a_window_limits_the_output_that_is_held_while_nobody_reads_it(sshd: Sshd) -> None:
    with connect(sshd.host()) as connection, connection.exec(["cat", "/dev/zero"], 1 << 16) as channel:
        held, limit = channel._raw.in_buffer, time.monotonic() + 20
        while len(held) < 1 << 16 and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(0.2)
        assert len(held) == 1 << 16


def test_a_server_that_renews_its_keys_gets_new_ones(sshd_with: Callable[..., Sshd]) -> None:
    with connect(sshd_with(rekey_bytes=1 << 20).host()) as connection:
        run(connection, ["head", "-c", "8000000", "/dev/zero"])
        # The session is named for ever by the hash of its first key exchange (RFC 4253, 7.2).
        transport = connection._transport
        assert transport.session_id != transport.H


def test_a_host_known_only_by_its_certificate_authority_is_refused_with_the_transport_that_can(sshd: Sshd) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    for key in (authority, sshd.key):
        sshd.trust(key, "@cert-authority")
        with pytest.raises(Unreachable, match=r"^node1: .*/known_hosts:1 has only a certificate auth") as caught:
            connect(sshd.host())
        assert "TFCTL_SSH=openssh" in caught.value.remedy
        assert "tfctl_ssh=openssh" in caught.value.remedy
    assert sshd.logins == 0


def test_a_key_of_a_security_token_is_refused_with_the_transport_that_can(sshd: Sshd) -> None:
    """The file names the token's key; the private key never leaves the token."""
    kind, public = b"sk-ssh-ed25519@openssh.com", bytes(32)
    fields = _text(kind) + _text(public) + _text(b"ssh:")
    private = bytes(8) + fields + b"\x01" + _text(bytes(64)) + _text(b"") + _text(b"comment")
    private += bytes(range(1, 1 + -len(private) % 8))
    head = b"openssh-key-v1\0" + _text(b"none") + _text(b"none") + _text(b"") + (1).to_bytes(4, "big")
    text = base64.encodebytes(head + _text(fields) + _text(private)).decode()
    sshd.key_file.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n")
    printed = subprocess.run(["ssh-keygen", "-y", "-f", sshd.key_file], capture_output=True, check=True, timeout=10)
    assert printed.stdout.startswith(kind)
    with pytest.raises(Unreachable, match="is a key of a security token") as caught:
        connect(sshd.host())
    assert "TFCTL_SSH=openssh" in caught.value.remedy


def _text(data: bytes) -> bytes:
    """Write a string as ssh does, after its length."""
    return len(data).to_bytes(4, "big") + data
