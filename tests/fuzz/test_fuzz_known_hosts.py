"""Which lines of a known_hosts file hold for a host: tfctl must trust no key that ssh does not trust, and see each key
that is revoked. `ssh-keygen -F` says what ssh reads."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path
from random import Random

from loopback import forget_files

from tests.fuzz.cases import FUZZER, Cases
from tfctl.remote.known_hosts import known
from tfctl.remote.ssh_config import Server

pytestmark = FUZZER

NAMES = ["node1", "NODE1", "node2", "10.0.0.1", "fe80::1", "a.b.c"]
PATTERNS = [
    *NAMES, "[node1]:2222", "[node1]:22", "[10.0.0.1]:2222", "*", "node*", "node?", "!node1", "!node*", "[node*]:2222",
    "[*]:2222", "10.0.0.*", "?ode1", "*.b.c", "!*", "", "node1 ", "[node1]", "[[node1]:2222", "no.e1", "node[12]",
    "\tnode1", "node1#", "#node1", "#", "@revoked",
]  # fmt: skip
MARKERS = ["", "", "", "@revoked ", "@revoked ", "@cert-authority ", "@unknown ", " ", "\t", "#", "# "]
#: Keys that differ, of the kind ed25519 (RFC 8709).
KEYS = [
    base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes([number]) * 32).decode() for number in range(1, 5)
]  # fmt: skip


def line(draw: Random) -> str:
    hosts = ",".join(draw.choice(PATTERNS) for _ in range(draw.choice([1, 1, 2, 3])))
    comment = draw.choice(["", " comment", " c d", " # d"])
    return f"{draw.choice(MARKERS)}{hosts}{draw.choice([' ', '  ', chr(9)])}ssh-ed25519 {draw.choice(KEYS)}{comment}"


def by_ssh(file: Path, name: str, port: int) -> list[tuple[str, str]]:
    """Return the markers and keys that ssh reads for a host: those for its port or, without any, for its name."""
    for what in [f"[{name}]:{port}", name] if port != 22 else [name]:
        done = subprocess.run(["ssh-keygen", "-F", what, "-f", str(file)], capture_output=True, text=True, check=False)
        if found := re.findall(r"^(?!# Host )(?:(@\S+)\s+)?.*?ssh-ed25519 (\S+)", done.stdout, re.MULTILINE):
            return found
    return []


def trusted(found: list[tuple[str, str]]) -> set[str]:
    return {key for marker, key in found if not marker} - revoked(found)


def revoked(found: list[tuple[str, str]]) -> set[str]:
    return {key for marker, key in found if marker == "@revoked"}


def test_no_key_is_trusted_that_ssh_does_not_trust_and_no_revoked_one_is_missed(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    cases = Cases(1500)
    for number, draw in cases:
        text = "".join(f"{line(draw)}\n" for _ in range(draw.randint(1, 4)))
        file.write_text(text)
        if draw.random() < 0.2:
            subprocess.run(["ssh-keygen", "-H", "-f", str(file)], capture_output=True, check=False)
        name, port = draw.choice(NAMES), draw.choice([22, 2222])
        forget_files()
        server = Server(name, name, port, "u", (), False, (), None, (str(file),), None, None, None, 1.0)
        ours = [(entry.marker, base64.b64encode(entry.key).decode()) for entry in known(server)]
        theirs = by_ssh(file, name.lower(), port)
        if trusted(ours) - trusted(theirs):
            cases.fault(number, "tfctl trusts a key that ssh does not trust", (name, port, text))
        if revoked(theirs) - revoked(ours):
            cases.fault(number, "tfctl misses that a key is revoked", (name, port, text))
        if trusted(theirs) - trusted(ours):
            cases.fault(number, "tfctl does not trust a key that ssh trusts", (name, port, text))
    cases.require_none(least=200)
