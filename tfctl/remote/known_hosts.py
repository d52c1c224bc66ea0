"""Host key verification with known_hosts (sshd(8)). Each file is read once and shared by all connections.

paramiko's own reader is not used: it compares every line for every connection and lacks markers and patterns.
"""

from __future__ import annotations

import base64
import hmac
import shlex
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import Unreachable
from tfctl.remote import refusals
from tfctl.remote.file_version import Version, version
from tfctl.remote.ssh_config import Server, matches
from tfctl.wording import Lines


@dataclass(frozen=True)
class KnownHostKey:
    """One key of a known_hosts file; ``marker`` is empty, ``@revoked`` or ``@cert-authority``."""

    file: str
    number: int
    marker: str
    kind: str
    key: bytes


def known(server: Server) -> list[KnownHostKey]:
    """Return the entries for ``server``, looked up as ssh does: by HostKeyAlias, else by ``[host]:port`` if the port is
    not 22, else by the bare name."""
    name = (server.key_alias or server.address).lower()
    if server.key_alias is None and server.port != 22 and (found := _entries(server, f"[{name}]:{server.port}")):
        return found
    return _entries(server, name)


def preferred(entries: Iterable[KnownHostKey], algorithms: Iterable[str]) -> tuple[str, ...]:
    """Return ``algorithms`` with those of known keys first, so that a server with several keys shows a known one."""
    held = {entry.kind for entry in entries if not entry.marker}
    return tuple(sorted(algorithms, key=lambda name: ("ssh-rsa" if name.startswith("rsa-") else name) not in held))


def check(server: Server, kind: str, key: bytes, entries: list[KnownHostKey]) -> None:
    """Raise Unreachable unless ``key`` is among ``entries`` and not revoked. A host certificate is not considered."""
    if any(entry.marker == "@revoked" and entry.key == key for entry in entries):
        raise revoked(server, fingerprint(key))
    if not any(entry.key == key for entry in entries if not entry.marker):
        raise _only_certified(server, entries) or mismatch(server, kind, fingerprint(key), entries)


def revoked(server: Server, shown: str) -> Unreachable:
    """Return the error for a revoked key with the fingerprint ``shown``."""
    return Unreachable(
        f"{server.name}: {server.place} shows a host key that known_hosts marks @revoked ({shown})",
        "do not connect; ask who revoked it",
    )


def mismatch(server: Server, kind: str, shown: str, entries: list[KnownHostKey]) -> Unreachable:
    """Return the error for a key with the fingerprint ``shown`` that is not among ``entries``: changed or unknown."""
    held = [entry for entry in entries if not entry.marker]
    return _changed(server, kind, shown, held) if held else _unknown(server, kind, shown)


def fingerprint(key: bytes) -> str:
    """Return the fingerprint as ``ssh-keygen -l`` prints it."""
    import hashlib

    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def _only_certified(server: Server, entries: list[KnownHostKey]) -> Unreachable | None:
    """Return the error for a host that is known only by the authority that certifies its keys, else None."""
    entry = next((entry for entry in entries if entry.marker == "@cert-authority"), None)
    if entry is None or not all(entry.marker for entry in entries):
        return None
    return refusals.only_certified(server, f"{entry.file}:{entry.number}")


def _changed(server: Server, kind: str, shown: str, held: list[KnownHostKey]) -> Unreachable:
    entry = next((entry for entry in held if entry.kind == kind), held[0])
    name = server.key_alias or (server.address if server.port == 22 else f"[{server.address}]:{server.port}")
    return Unreachable(
        f"{server.name}: the host key of {server.place} has changed: {entry.file}:{entry.number} holds "
        f"{fingerprint(entry.key)}, the host shows {shown} ({kind})",
        Lines(
            "find out why: the host was reinstalled, or another machine has its address. If the new key is correct:",
            f"ssh-keygen -R {shlex.quote(name)} -f {shlex.quote(entry.file)}; {_keyscan(server, kind, entry.file)}",
        ),
    )


def _unknown(server: Server, kind: str, shown: str) -> Unreachable:
    file = next((file for file in server.known_hosts if file != "/dev/null"), "~/.ssh/known_hosts")
    return Unreachable(
        f"{server.name}: the host key of {server.place} is not known: {shown} ({kind})",
        Lines(
            f"compare it with `ssh-keygen -lf /etc/ssh/ssh_host_{_short(kind)}_key.pub` on the host's console; if it "
            "is the same:",
            _keyscan(server, kind, file),
        ),
    )


def _keyscan(server: Server, kind: str, file: str) -> str:
    scan = shlex.join(["ssh-keyscan", "-t", _short(kind), "-p", str(server.port), server.address])
    rename = f" | sed 's/^[^ ]*/{server.key_alias}/'" if server.key_alias else ""
    return f"{scan}{rename} >> {shlex.quote(file)}"


def _short(kind: str) -> str:
    return kind.removeprefix("ssh-").partition("-")[0]


def _entries(server: Server, name: str) -> list[KnownHostKey]:
    return [entry for file in server.known_hosts if (held := _read(file)) for entry in held.entries(name)]


class _File:
    """A known_hosts file: plain names in a dict, hashed names and patterns in lists. Thread-safe.

    A hashed name is moved to the plain names once a host with this name has been looked up.
    """

    def __init__(self, path: str) -> None:
        self._plain: dict[str, list[KnownHostKey]] = {}
        self._hashed: list[tuple[bytes, bytes, KnownHostKey]] = []
        self._looked_up: set[str] = set()
        self._lock = threading.Lock()
        self._patterns: list[tuple[list[str], KnownHostKey]] = []
        for number, text in enumerate(Path(path).read_text(errors="replace").splitlines(), 1):
            self._add(path, number, text.split())

    def entries(self, name: str) -> list[KnownHostKey]:
        with self._lock:
            self._unhash(name)
            held = [*self._plain.get(name, [])]
        return [*held, *(entry for each, entry in self._patterns if matches(each, name))]

    def _unhash(self, name: str) -> None:
        """Move the lines with the hash of this name to the plain names. Compute no hash for a name that was looked up
        before, or for a line whose name is known: each has one name."""
        if name in self._looked_up:
            return
        self._looked_up.add(name)
        rest = []
        for salt, digest, entry in self._hashed:
            if hmac.digest(salt, name.encode(), "sha1") == digest:
                self._plain.setdefault(name, []).append(entry)
            else:
                rest.append((salt, digest, entry))
        self._hashed = rest

    def _add(self, path: str, number: int, words: list[str]) -> None:
        # Behind a marker, # does not begin a comment.
        if not words or words[0].startswith("#"):
            return
        marker = words.pop(0) if words[0].startswith("@") else ""
        if marker not in ("", "@revoked", "@cert-authority") or len(words) < 3 or words[0].startswith("@"):
            return
        try:
            entry = KnownHostKey(path, number, marker, words[1], base64.b64decode(words[2], validate=True))
            if words[0].startswith("|1|"):
                salt, digest = (base64.b64decode(part, validate=True) for part in words[0].split("|")[2:4])
                self._hashed.append((salt, digest, entry))
                return
        except ValueError:
            return
        names = words[0].lower().split(",")
        if any(character in words[0] for character in "*?!"):
            self._patterns.append((names, entry))
        else:
            for name in names:
                self._plain.setdefault(name, []).append(entry)


_files: dict[str, tuple[Version, _File]] = {}
_lock = threading.Lock()


def _read(path: str) -> _File | None:
    """Return the current content of the file, or None. Read it again only if it has changed."""
    now = version(path)
    if now is None:
        return None
    with _lock, suppress(OSError):
        if path not in _files or _files[path][0] != now:
            _files[path] = (now, _File(path))
        return _files[path][1]
    return None
