"""The node part of tfctl, packed for hosts: tfctl/provision/node_part.py describes the result."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible import constants
from ansible.plugins.lookup import LookupBase

# The package tfctl is beside roles/ in a checkout; an installed tfctl contains roles/ as tfctl/_ansible/roles.
DATA = Path(__file__).resolve().parents[3]
sys.path.append(str(DATA if (DATA / "tfctl").is_dir() else DATA.parents[1]))

from tfctl.provision import node_part  # noqa: E402

DOCUMENTATION = """
name: tfctl_node_part
short_description: The node part of tfctl, packed
description:
  - Returns the digest, the archive and the files of the node part. The archive is in Ansible's local temporary
    directory.
"""


class LookupModule(LookupBase):
    def run(self, _terms, **_):
        return [node_part.pack(Path(constants.DEFAULT_LOCAL_TMP))]
