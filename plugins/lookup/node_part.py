"""The node part of tfctl, packed for hosts: tfctl/provision/node_part.py describes the result."""

from __future__ import annotations

DOCUMENTATION = """
name: node_part
short_description: The node part of tfctl, packed
description:
  - The node part is what tfctl installs on hosts to run jobs.
  - Takes no names, and returns one value. Creates the archive in Ansible's local temporary directory.
"""

EXAMPLES = """
- name: Show the version of the node part
  ansible.builtin.debug:
    msg: "{{ (query('tfctl.cluster.node_part') | first).digest }}"
"""

RETURN = """
_raw:
  description: The node part. Paths are on the control machine.
  type: list
  elements: dict
  contains:
    digest: {description: 'The version, 16 hex digits, and the name of the directory on hosts.', type: str}
    archive: {description: The path of the directory as .tar.gz., type: str}
    files:
      description: Each file and directory of the archive, as NAME MODE UID SHA256. A directory has - as its hash.
      type: list
      elements: str
    program: {description: The path of the program that sudo runs. The archive does not contain it., type: str}
    drop_in: {description: The path of the file that systemd adds to the unit of every task., type: str}
"""

from pathlib import Path

from ansible.constants import DEFAULT_LOCAL_TMP
from ansible.plugins.lookup import LookupBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision import node_part


class LookupModule(LookupBase):
    def run(self, _terms: list[str], **_: object) -> list[node_part.NodePart]:
        return [node_part.pack(Path(DEFAULT_LOCAL_TMP))]
