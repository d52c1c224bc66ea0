#!/usr/bin/python
"""Point a stack's link to its previous environment."""

from __future__ import annotations

DOCUMENTATION = """
module: rollback
short_description: Return a stack to its previous environment
author: [the tfctl authors (!UNKNOWN)]
description:
  - The environment in use now is kept. The next provisioning, or another rollback, switches back to it.
  - Fails while a job runs with the stack, and if there is no previous environment.
options:
  stack: {type: str, required: true, description: The stack.}
  folder: {type: path, default: /opt/tfctl/stacks, description: Where stacks are.}
"""

EXAMPLES = """
- name: Return to the environment before the last update
  tfctl.cluster.rollback:
    stack: tf2.15
"""

RETURN = """
faults: {type: list, elements: dict, returned: failure, description: 'Why it failed: C(message), C(remedy), C(kind).'}
"""

import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, finish
from ansible_collections.tfctl.cluster.plugins.module_utils.links import before, current, refuse_under_a_job, switch


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "stack": {"type": "str", "required": True},
            "folder": {"type": "path", "default": "/opt/tfctl/stacks"},
        },
        supports_check_mode=True,
    )
    folder, stack = Path(module.params["folder"]), module.params["stack"]
    finish(module, lambda: roll_back(folder, stack, act=not module.check_mode))


def roll_back(folder: Path, stack: str, act: bool) -> dict[str, object]:
    if not re.fullmatch(r"[a-z][a-z0-9.]{0,19}", stack) or stack == "none":
        remedy = "name it with --stack, or as tfctl_stack in the inventory"
        raise ModuleFailed("no stack is named for this host", remedy)
    link = folder / stack
    now, then = current(link), before(link)
    if now is None:
        raise ModuleFailed(f"{stack} is not on this host", f"install it: tfctl provision --stack {stack}")
    if then is None:
        raise ModuleFailed(
            f"{stack} has no environment before {now.name}",
            "there is nothing to return to until tfctl provision has installed another one",
        )
    refuse_under_a_job(link)
    if act:
        switch(link, then)
    return {"changed": True, "diff": {"before": f"{link} → {now.name}\n", "after": f"{link} → {then.name}\n"}}


if __name__ == "__main__":
    main()
