#!/usr/bin/python
"""Make a machine match a list of accounts, directories, files, links and services, in one round trip.

Every run inspects the machine and changes what differs. It trusts no record of an earlier run.
"""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed, converge

DOCUMENTATION = """
module: tfctl_converge
short_description: Make a machine match a list of accounts, directories, files, links and services
description:
  - The entries are looked at in their order, and what differs is changed. Each is named by its one key of
    C(group), C(user), C(members), C(directory), C(file), C(tree), C(link), C(absent), C(service), C(unit), C(stopped),
    C(command).
  - Files and trees are written beside their place and moved there, so that nobody meets half of one.
  - tfctl_machine.py in module_utils says what each kind of entry takes.
options:
  entries: {type: list, elements: dict, required: true, description: What is to be there, in the order of making it.}
"""


def main():
    module = AnsibleModule(
        argument_spec={"entries": {"type": "list", "elements": "dict", "required": True}}, supports_check_mode=True
    )
    changes = []
    try:
        for change in converge(module.params["entries"], act=not module.check_mode):
            changes.append(change)
    except Failed as failed:
        # Leave out the invocation, which would return every file's content.
        module.fail_json(msg=str(failed), faults=[failed.fault], changed=bool(changes), invocation={})
    diff = [
        {"before_header": change.what, "after_header": change.what, "before": change.before, "after": change.after}
        for change in changes
    ]
    module.exit_json(changed=bool(changes), changes=[change.what for change in changes], diff=diff, invocation={})


if __name__ == "__main__":
    main()
