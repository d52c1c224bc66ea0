#!/usr/bin/python
"""Read the fingerprint of an OpenPGP key file on a host without gpg.

RFC 9580: ASCII armor is section 6, packet headers 4.2, fingerprints of version 4 keys 5.5.4.2.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: tfctl_openpgp_key
short_description: Read the fingerprint of an OpenPGP key
description:
  - Changes nothing. Needs no gpg, which minimal Debian and EL systems lack.
options:
  path: {type: path, required: true, description: "A file with an OpenPGP public key, armored or not."}
"""

RETURN = """
fingerprint:
  description: 40 uppercase hexadecimal digits; empty if there is no such file, or if it contains no OpenPGP key.
  returned: success
  type: str
"""

PUBLIC_KEY = 6


def main() -> None:
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    try:
        found = fingerprint(Path(module.params["path"]).read_bytes())
    except (FileNotFoundError, ValueError):
        found = ""
    module.exit_json(changed=False, fingerprint=found, invocation={})


def fingerprint(data: bytes) -> str:
    """Return the fingerprint of the primary key in ``data``, armored or not, as 40 uppercase hexadecimal digits.

    Raises ValueError if it is not a public key of version 4.
    """
    body = first_packet(dearmored(data))
    if not body or body[0] != 4:
        raise ValueError("it is not a version 4 OpenPGP key")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()


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


def first_packet(data: bytes) -> bytes:
    """Return the body of the public key packet at the start of a key file."""
    if len(data) < 6 or not data[0] & 0x80:
        raise ValueError("it is not an OpenPGP key")
    if data[0] & 0x40:
        kind, length, start = data[0] & 0x3F, data[1], 2
        if 192 <= length < 224:
            length, start = ((length - 192) << 8) + data[2] + 192, 3
        elif length == 255:
            length, start = int.from_bytes(data[2:6], "big"), 6
    else:
        kind, size = (data[0] >> 2) & 0x0F, (1, 2, 4, 0)[data[0] & 3]
        length, start = int.from_bytes(data[1 : 1 + size], "big"), 1 + size
    if kind != PUBLIC_KEY or start + length > len(data):
        raise ValueError("it is not an OpenPGP public key")
    return data[start : start + length]


if __name__ == "__main__":
    main()
