"""Read the fingerprint and the expiry of an OpenPGP key without gpg, which minimal Debian and EL systems lack.

RFC 9580: ASCII armor is section 6, packet headers 4.2, fingerprints of version 4 keys 5.5.4.2, signatures 5.2.
Ansible's plugins import this module: standard library only.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple, TypedDict

SIGNATURE, PUBLIC_KEY, SUBKEY = 2, 6, 14
#: Types of signatures that may limit how long a key is valid.
OF_USER_ID, OF_KEY = (0x10, 0x11, 0x12, 0x13), 0x1F
#: Types of subpackets: when a signature was made, and after how many seconds the key expires.
MADE, EXPIRES = 2, 9


class Packet(NamedTuple):
    kind: int
    body: bytes


class Key(TypedDict):
    """``fingerprint``: 40 uppercase hexadecimal digits; "" if there is no OpenPGP key. ``expires``: the day on which
    the key expires, or "" if it never does. ``expired``: whether that day has come.
    """

    fingerprint: str
    expires: str
    expired: bool


def read(data: bytes) -> Key:
    """Return what the content of a key file says, armored or not."""
    try:
        found, end = fingerprint(data), expiry(data)
    except ValueError:
        return {"fingerprint": "", "expires": "", "expired": False}
    day = f"{end:%Y-%m-%d}" if end else ""
    return {"fingerprint": found, "expires": day, "expired": end is not None and end <= datetime.now(UTC)}


def fingerprint(data: bytes) -> str:
    """Return the fingerprint of the primary key in ``data``, armored or not, as 40 uppercase hexadecimal digits.

    Raises ValueError if it is not a public key of version 4.
    """
    body = primary_key(packets(dearmored(data)))
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()


def expiry(data: bytes) -> datetime | None:
    """Return when the primary key in ``data`` expires, as the newest signature that it made of itself says.

    Raises ValueError if it is not a public key of version 4.
    """
    found, own = packets(dearmored(data)), bytes.fromhex(fingerprint(data))[-8:]
    created, newest = int.from_bytes(primary_key(found)[1:5], "big"), (0, 0)
    for kind, body in found:
        if kind == SUBKEY:
            break
        # The key ID of who made the signature is in one of two subpackets.
        if kind == SIGNATURE and body[0] == 4 and body[1] in (*OF_USER_ID, OF_KEY) and own in body:
            times = dict(subpackets(body[6 : 6 + int.from_bytes(body[4:6], "big")]))
            # Signatures of the key itself may have another purpose, such as to name who may revoke it.
            if body[1] != OF_KEY or EXPIRES in times:
                newest = max(newest, (times.get(MADE, 0), times.get(EXPIRES, 0)))
    return datetime.fromtimestamp(created + newest[1], UTC) if newest[1] else None


def primary_key(found: Iterator[Packet]) -> bytes:
    """Return the body of the first packet. Raises ValueError if it is not a public key of version 4."""
    first = next(found, None)
    if first is None or first.kind != PUBLIC_KEY:
        raise ValueError("it is not an OpenPGP public key")
    if not first.body or first.body[0] != 4:
        raise ValueError("it is not a version 4 OpenPGP key")
    return first.body


def dearmored(data: bytes) -> bytes:
    """Return the data without its ASCII armor."""
    if not data.lstrip().startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----"):
        return data
    lines = data.decode("ascii", "replace").replace("\r", "").strip().split("\n")
    start = next((place for place, line in enumerate(lines) if not line.strip()), 0) + 1
    kept = []
    for line in lines[start:]:
        if line.startswith(("=", "-----END")):
            break
        kept.append(line)
    return base64.b64decode("".join(kept))


def packets(data: bytes) -> Iterator[Packet]:
    """Yield the packets of a key file. Raises ValueError for one that is not complete."""
    while data:
        if len(data) < 6 or not data[0] & 0x80:
            raise ValueError("it is not an OpenPGP key")
        if data[0] & 0x40:
            kind, (length, start) = data[0] & 0x3F, length_at(data[1:], 224)
        else:
            kind, start = (data[0] >> 2) & 0x0F, (1, 2, 4, 0)[data[0] & 3]
            length = int.from_bytes(data[1 : 1 + start], "big")
        end = 1 + start + length
        if end > len(data):
            raise ValueError("it is not a complete OpenPGP key")
        yield Packet(kind, data[1 + start : end])
        data = data[end:]


def subpackets(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the type and the value of each subpacket of a signature, as a number."""
    while data:
        length, start = length_at(data, 255)
        # The first bit of the type says that whoever does not understand the subpacket must reject the signature.
        yield data[start] & 0x7F, int.from_bytes(data[start + 1 : start + length], "big")
        data = data[start + length :]


def length_at(data: bytes, limit: int) -> tuple[int, int]:
    """Return a length, and how many bytes it takes: one, two from 192 to ``limit``, or five."""
    if 192 <= data[0] < limit:
        return ((data[0] - 192) << 8) + data[1] + 192, 2
    return (int.from_bytes(data[1:5], "big"), 5) if data[0] == 255 else (data[0], 1)
