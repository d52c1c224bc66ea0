"""What a key file contains, as far as it decides whether and how the key can be used."""

from __future__ import annotations

import base64
import re
from pathlib import Path

_PUBLIC = re.compile(rb"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[\w@.-]+\s+AAAA")
_OPENSSH = re.compile(rb"-BEGIN OPENSSH PRIVATE KEY-+([\w+/=\s]+)-")
# The beginning of a private key in OpenSSH's own format, up to the name of its cipher (PROTOCOL.key).
_UNLOCKED = b"openssh-key-v1\0\0\0\0\4none"


def is_public(name: str) -> bool:
    """Return whether the file holds a public key, which begins with its type. Raises OSError."""
    with Path(name).open("rb") as file:
        return _PUBLIC.match(file.read(100)) is not None


def is_on_token(name: str) -> bool:
    """Return whether the file only refers to a key of a security token: its type begins with sk-. Raises OSError."""
    return re.search(rb"sk-(ssh|ecdsa)-", _openssh(Path(name).read_bytes())) is not None


def is_locked(name: str) -> bool:
    """Return whether the private key needs a passphrase. Raises OSError."""
    text = Path(name).read_bytes()
    data = _openssh(text)
    return not data.startswith(_UNLOCKED) if data else b"ENCRYPTED" in text


def _openssh(text: bytes) -> bytes:
    """Return the decoded content of a private key in OpenSSH's own format, or ``b""``."""
    found = _OPENSSH.search(text)
    try:
        return base64.b64decode(found[1]) if found else b""
    except ValueError:
        return b""
