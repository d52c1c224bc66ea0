#!/usr/bin/python
"""The documentation of the action plugin send_wheels. Ansible looks for it here."""

from __future__ import annotations

DOCUMENTATION = """
module: send_wheels
short_description: Send wheels from the control machine to the store of a host
author: [the tfctl authors (!UNKNOWN)]
description:
  - Sends those of O(files) that O(folder) lacks, and compares their hashes on the host.
  - Sends files in pieces of 64 MiB, so that a later run continues after the last complete piece.
  - Does not support check mode.
options:
  files:
    description: The files, as the action wheels returns them.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {type: str, required: true, description: The name of the file.}
      path: {type: str, required: true, description: Its path on the control machine.}
      sha256: {type: str, required: true, description: Its hash.}
      size: {type: int, description: Its size in bytes. The action looks it up.}
  folder: {type: path, required: true, description: The store on the host.}
  reason: {type: str, default: '', description: 'Why no other host sends the files, for a warning. Empty for none.'}
"""

EXAMPLES = """
- name: Send the wheels to the host
  tfctl.cluster.send_wheels:
    files: "{{ wheels_downloaded.files }}"
    folder: /var/cache/tfctl/wheels
"""

RETURN = """
sent: {type: int, returned: success, description: The number of bytes that were sent.}
faults: {type: list, elements: dict, returned: failure, description: 'Why it failed: C(message), C(remedy), C(kind).'}
"""
