#!/usr/bin/python
"""Gather the facts about a host that decide what it gets, without changing anything."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_facts import gather

DOCUMENTATION = """
module: tfctl_facts
short_description: Gather the facts about a host that decide what it gets
description:
  - Reads the host and changes nothing. Returns C(seen); tfctl/provision/decide/facts.py documents it.
  - The action plugin tfctl_decide runs this module.
options:
  uid: {type: int, required: true, description: UID and GID of the job user and its group.}
  shared: {type: list, elements: str, required: true, description: Directories that jobs write to.}
  pythons: {type: list, elements: path, default: [], description: Interpreters on this host that stacks may use.}
  libraries: {type: list, elements: str, default: [], description: System libraries that CPython trees require.}
"""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "uid": {"type": "int", "required": True},
            "shared": {"type": "list", "elements": "str", "required": True},
            "pythons": {"type": "list", "elements": "path", "default": []},
            "libraries": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    given = module.params
    seen = gather(given["uid"], given["shared"], given["pythons"], given["libraries"])
    module.exit_json(changed=False, seen=seen, invocation={})


if __name__ == "__main__":
    main()
