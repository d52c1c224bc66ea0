#!/usr/bin/python
"""Gather the facts about a host that decide what it gets, without changing anything."""

from __future__ import annotations

DOCUMENTATION = """
module: facts
short_description: Gather the facts about a host that decide what it gets
author: [the tfctl authors (!UNKNOWN)]
description:
  - Reads the host and changes nothing.
  - The action plugin decide runs this module.
options:
  uid: {type: int, required: true, description: UID and GID of the job user and its group.}
  directories: {type: list, elements: str, required: true, description: Directories whose file systems are looked at.}
  address: {type: str, default: '', description: Where the other hosts reach this one.}
  peers: {type: list, elements: str, default: [], description: Names at which other hosts are reached.}
  pythons: {type: list, elements: path, default: [], description: Interpreters on this host that stacks may use.}
  libraries: {type: list, elements: str, default: [], description: System libraries that CPython trees require.}
"""

EXAMPLES = """
- name: Gather the facts of the host
  tfctl.cluster.facts:
    uid: 880
    directories: [/srv/tfctl]
  register: host

- name: Refuse a host with less than 10 GB of free space
  ansible.builtin.assert:
    that: host.seen.disks['/srv/tfctl'].free_mb >= 10000
"""

RETURN = """
seen: {type: dict, returned: success, description: The facts. tfctl/provision/decide/facts.py documents them.}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.facts import gather


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "uid": {"type": "int", "required": True},
            "directories": {"type": "list", "elements": "str", "required": True},
            "address": {"type": "str", "default": ""},
            "peers": {"type": "list", "elements": "str", "default": []},
            "pythons": {"type": "list", "elements": "path", "default": []},
            "libraries": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, seen=gather(**module.params), invocation={})


if __name__ == "__main__":
    main()
