#!/usr/bin/python
"""Read the fingerprint of an OpenPGP key file on a host without gpg."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_openpgp import fingerprint

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


def main() -> None:
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    try:
        found = fingerprint(Path(module.params["path"]).read_bytes())
    except (FileNotFoundError, ValueError):
        found = ""
    module.exit_json(changed=False, fingerprint=found, invocation={})


if __name__ == "__main__":
    main()
