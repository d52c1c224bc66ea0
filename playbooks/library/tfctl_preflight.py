#!/usr/bin/python
"""Inspect a host without changing it, and report everything that prevents its provisioning."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_explain import explain
from ansible.module_utils.tfctl_facts import gather
from ansible.module_utils.tfctl_fault import fail
from ansible.module_utils.tfctl_judge import judge

DOCUMENTATION = """
module: tfctl_preflight
short_description: Name everything that stands against what a host is to become
description:
  - Reads the host once and changes nothing. Fails with every fault at once, each with its remedy; otherwise returns
    C(seen), the facts that other roles go by, and C(plan), what was chosen.
options:
  uid: {type: int, required: true, description: Number of the job user and its group.}
  shared: {type: list, elements: path, required: true, description: Directories that jobs write to.}
  operators: {type: list, elements: str, default: [], description: Who may run jobs; empty, who logs in.}
  stack: {type: str, default: '', description: The stack this host is to have, or C(none).}
  stacks: {type: dict, required: true, description: Every stack there is; tfctl/model/stacks.}
  systems: {type: dict, required: true, description: The operating systems that are supported, with their Pythons.}
  nvidia: {type: dict, required: true, description: Where NVIDIA's software comes from; tfctl/model/stacks/nvidia.yaml.}
  pythons: {type: list, elements: path, default: [], description: Interpreters on this host that stacks may take.}
  trees: {type: list, elements: dict, default: [], description: CPython trees that may be sent here; tfctl_python_tree.}
  explain: {type: bool, default: false, description: Return what each stack would be here, C(explained), and no fault.}
  wishes: {type: dict, required: true, description: What the inventory wishes about GPUs.}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "uid": {"type": "int", "required": True},
            "shared": {"type": "list", "elements": "path", "required": True},
            "operators": {"type": "list", "elements": "str", "default": []},
            "stack": {"type": "str", "default": ""},
            "stacks": {"type": "dict", "required": True},
            "systems": {"type": "dict", "required": True},
            "nvidia": {"type": "dict", "required": True},
            "pythons": {"type": "list", "elements": "path", "default": []},
            "trees": {"type": "list", "elements": "dict", "default": []},
            "explain": {"type": "bool", "default": False},
            "wishes": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    # An ini inventory gives one text; commas may have spaces behind them.
    wanted = {**module.params, "shared": [path.strip() for path in module.params["shared"]]}
    needs = sorted({library for tree in wanted["trees"] for library in tree["needs"]})
    seen = gather(wanted["uid"], wanted["shared"], wanted["pythons"], needs)
    if wanted["explain"]:
        module.exit_json(changed=False, explained=explain(seen, wanted), invocation={})
    plan, faults = judge(seen, wanted)
    if faults:
        fail(module, faults, seen=seen)
    for notice in plan["notices"]:
        module.warn(notice)
    module.exit_json(changed=False, seen=seen, plan=plan, invocation={})


if __name__ == "__main__":
    main()
