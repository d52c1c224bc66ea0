#!/usr/bin/python
"""Unpack a built Open MPI and link it into a stack's environment, or remove the links."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_openmpi import OpenMpi
from ansible.module_utils.tfctl_venv import spent

DOCUMENTATION = """
module: tfctl_openmpi
short_description: Unpack an Open MPI that was built
description:
  - Looks at the names and sizes of its files. Where they differ it is unpacked anew from O(archive), beside its place.
  - The programs of the environment get links to its own.
options:
  prefix: {type: str, required: true, description: Where it lies, the same on all hosts; empty for no links to one.}
  environment: {type: path, required: true, description: The stack's environment.}
  archive: {type: path, description: A tar of what lies in O(prefix); it is removed. Not needed to look.}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "prefix": {"type": "str", "required": True},
            "environment": {"type": "path", "required": True},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    openmpi = OpenMpi(**module.params)
    try:
        with spent(None if module.check_mode else openmpi.archive):
            whole, linked = openmpi.whole(), openmpi.linked()
            if not module.check_mode:
                if not whole:
                    openmpi.unpack()
                openmpi.link()
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['prefix']}: {error.strerror}", invocation={})
    changed = not (whole and linked)
    before = f"{openmpi.prefix} is not whole\n" if not whole else f"{openmpi.bin} does not lead to it\n"
    diff = {"before_header": "wrong", "after_header": "right", "before": before, "after": ""}
    module.exit_json(changed=changed, differs=changed, unpack=not whole, diff=diff if changed else [], invocation={})


if __name__ == "__main__":
    main()
