"""The filter tfctl_openpgp_key: the fingerprint and the expiry of a key file that slurp has read."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path

# Ansible may run in an environment without tfctl. Add the directory that contains it: a checkout or site-packages.
sys.path.extend(str(each) for each in Path(__file__).resolve().parents if (each / "tfctl/errors.py").exists())

from tfctl.provision import openpgp

DOCUMENTATION = """
name: tfctl_openpgp_key
short_description: Read the fingerprint and the expiry of an OpenPGP key
description:
  - Returns C(fingerprint), C(expires) and C(expired), which the class Key in tfctl/provision/openpgp.py describes.
options:
  _input: {description: 'A file with a public key, in base64. Empty if there is none.', type: str, required: true}
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[[str], openpgp.Key]]:
        return {"tfctl_openpgp_key": lambda content: openpgp.read(base64.b64decode(content))}
