#!/usr/bin/python
"""Link a stack's name to its previous environment."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_links import before, current, switch
from ansible.module_utils.tfctl_machine import Failed

DOCUMENTATION = """
module: tfctl_rollback
short_description: Have a stack's name lead to the environment before
description:
  - The environment that it leads to now stays; the next provisioning, or another rollback, goes back to it. Refused
    while a job runs with the stack, and where there is none before.
options:
  stack: {type: str, required: true, description: The stack.}
  folder: {type: path, default: /opt/tfctl/stacks, description: Where stacks are.}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "stack": {"type": "str", "required": True},
            "folder": {"type": "path", "default": "/opt/tfctl/stacks"},
        },
        supports_check_mode=True,
    )
    stack = module.params["stack"]
    link = Path(module.params["folder"], stack)
    try:
        if not re.fullmatch(r"[a-z][a-z0-9.]{0,19}", stack) or stack == "none":
            raise Failed("no stack is named for this host", "name it with --stack, or as tfctl_stack in the inventory")
        now, then = current(link), before(link)
        if now is None:
            raise Failed(f"{stack} is not on this host", f"tfctl provision --stack {stack} brings it")
        if then is None:
            raise Failed(
                f"of {stack} there is no environment before {now.name}",
                "one stays when provisioning replaces it by another; until then there is nothing to go back to",
            )
        if not module.check_mode:
            switch(link, then)
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault])
    except OSError as error:
        module.fail_json(msg=f"{error.filename or link}: {error.strerror}")
    module.exit_json(changed=True, diff={"before": f"{link} → {now.name}\n", "after": f"{link} → {then.name}\n"})


if __name__ == "__main__":
    main()
