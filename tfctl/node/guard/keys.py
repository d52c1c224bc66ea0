"""Authenticate the messages between the guards of a job.

All hosts of a job have the same random key. The key of an attempt is derived from it and the run. The keys of the two
directions of a connection are derived from the key of the attempt, both nonces, the host and the direction. Every
message has a counter, so none can be repeated, dropped or moved to another connection.
"""

from __future__ import annotations

import hashlib
import hmac

_MAC_LENGTH = 64


class Forged(Exception):
    """A message does not come from the other guard, or not in this order."""


def session_key(key: bytes, run: str, host: str, head_nonce: str, nonce: str, to_head: bool) -> bytes:
    """Return the key of one direction of a connection between the head and ``host``."""
    attempt = hmac.new(key, f"attempt {run}".encode(), hashlib.sha256).digest()
    direction = "to the head" if to_head else "to the member"
    text = "\n".join([direction, run, host, head_nonce, nonce])
    return hmac.new(attempt, text.encode(), hashlib.sha256).digest()


class Sealer:
    """Seal the messages of one direction."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def seal(self, body: bytes) -> bytes:
        """Return a line for a body without line breaks."""
        self._count += 1
        return _mac(self._key, self._count, body) + b" " + body + b"\n"


class Opener:
    """Check the messages of one direction."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def open(self, line: bytes) -> bytes:
        """Return the body of the next line. Raises Forged."""
        mac, _, body = line.rstrip(b"\n").partition(b" ")
        self._count += 1
        if len(mac) != _MAC_LENGTH or not hmac.compare_digest(mac, _mac(self._key, self._count, body)):
            raise Forged
        return body


def _mac(key: bytes, count: int, body: bytes) -> bytes:
    return hmac.new(key, b"%d " % count + body, hashlib.sha256).hexdigest().encode()
