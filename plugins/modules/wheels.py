#!/usr/bin/python
"""The documentation of the action plugin wheels. Ansible looks for it here."""

from __future__ import annotations

DOCUMENTATION = """
module: wheels
short_description: Download the wheels of lock files to the control machine
author: [the tfctl authors (!UNKNOWN)]
description:
  - Downloads with pip, once for all hosts. pip uses its own settings, and rejects a file whose hash is not in the lock
    file. Files are kept, and a later run downloads only what is new.
  - If the control machine has the version of Python in O(python), also compiles the modules of each wheel. The bytecode
    is one more file.
options:
  locks:
    description: "Lock files in pip's format, with hashes."
    type: list
    elements: path
    required: true
  source:
    description: A requirement with its hash, to download as source too. The result is then one archive of all files.
    type: str
    default: ''
  python: {type: str, required: true, description: 'The version of Python that the wheels are for, such as 3.11.'}
  machine: {type: str, required: true, description: 'The architecture that they are for, such as x86_64.'}
  folder: {type: path, required: true, description: Where to keep the files.}
  index_url:
    description: The package index, in place of that of pip's settings. It is not logged.
    type: str
    default: ''
"""

EXAMPLES = """
- name: Download the wheels of a lock file, and uv
  tfctl.cluster.wheels:
    locks: ["{{ playbook_dir }}/mine.txt", "{{ playbook_dir }}/uv.txt"]
    python: "3.11"
    machine: "{{ ansible_facts.architecture }}"
    folder: ~/.cache/wheels
  register: wheels_downloaded
"""

RETURN = """
files:
  description: The files.
  type: list
  elements: dict
  returned: without O(source)
  contains:
    name: {type: str, description: The name of the file.}
    path: {type: str, description: Its path on the control machine.}
    sha256: {type: str, description: Its hash.}
    size: {type: int, description: Its size in bytes.}
path: {type: str, returned: with O(source), description: The archive on the control machine.}
"""
