"""The node part of tfctl, packed for hosts: tfctl/provision/node_part.py describes the result."""

from __future__ import annotations

from pathlib import Path

from ansible.constants import DEFAULT_LOCAL_TMP
from ansible.plugins.lookup import LookupBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision import node_part

DOCUMENTATION = """
name: node_part
short_description: The node part of tfctl, packed
description:
  - Returns the digest, the archive and the files of the node part. The archive is in Ansible's local temporary
    directory.
"""


class LookupModule(LookupBase):
    def run(self, _terms: list[str], **_: object) -> list[node_part.NodePart]:
        return [node_part.pack(Path(DEFAULT_LOCAL_TMP))]
