"""Decide what a host gets: gather its facts there, with the module tfctl_facts, and decide on the control machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import BOOLEANS, BOOLEANS_TRUE
from ansible.plugins.action import ActionBase

if find_spec("tfctl") is None:  # Ansible has an environment of its own
    ROOT = Path(__file__).resolve().parents[2]
    sys.path.append(str(ROOT.parents[1] if ROOT.name == "_ansible" else ROOT))

from tfctl import schema
from tfctl.errors import TfctlError
from tfctl.model import stacks as catalogue
from tfctl.model.host import local_paths
from tfctl.provision.control import cache
from tfctl.provision.decide.comparison import compared
from tfctl.provision.decide.explain import explain
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import fault
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.space import directories
from tfctl.provision.decide.wanted import ALL, Wanted, Wishes
from tfctl.provision.python_tree import pack

if TYPE_CHECKING:
    from tfctl.model.stacks import Stack
    from tfctl.provision.decide.plan import Plan
    from tfctl.provision.requirements import Packages

DOCUMENTATION = """
name: tfctl_decide
short_description: Report everything that prevents what a host is to become, and decide how to get there
description:
  - Gathers the facts of the host with the module tfctl_facts, which changes nothing. Returns C(seen), the facts,
    C(plan), what was chosen, and C(requirements), what the role requirements installs. If the host cannot be
    provisioned, returns C(faults) instead of a plan, each with its remedy, for tfctl_report_faults. In both cases,
    returns C(compared) for the action tfctl_compare_hosts. The classes in tfctl/provision/decide document them.
options:
  uid: {type: int, required: true, description: UID and GID of the job user and its group.}
  shared: {type: list, elements: str, required: true, description: Directories that jobs write to.}
  operators: {type: list, elements: str, default: [], description: Who may run jobs; empty, the login user.}
  stack: {type: str, default: '', description: The stack of the host, or C(none).}
  stack_dirs: {type: list, elements: str, default: [], description: Directories with stacks of your own.}
  pythons: {type: list, elements: str, default: [], description: Interpreters on the host that stacks may use.}
  trees: {type: list, elements: str, default: [], description: CPython trees of the control machine, to send to hosts.}
  address: {type: str, default: '', description: Where the other hosts reach this one.}
  time_sync: {type: bool, default: false, description: Whether provisioning will synchronize the clock.}
  ports: {type: str, default: '', description: 'The ports of jobs, such as 2222-2299.'}
  shared_storage: {type: str, default: '', description: How provisioning mounts or checks a shared directory.}
  requirements: {type: list, elements: str, default: [], description: Requirements files of jobs.}
  index_url: {type: str, default: '', description: 'The package index for them, in place of that of pip''s settings.'}
  explain: {type: bool, default: false, description: Return what each stack would be here, C(explained), and no fault.}
  wishes: {type: dict, default: {}, description: The settings that choose between several ways; roles/preflight.}
"""
_TEXT, _SWITCH = {"type": "str"}, {"type": "bool"}
_TEXTS = {"type": "list", "elements": "str", "default": []}
_OF_TYPE = {"bool": _SWITCH, "str": _TEXT, "tuple[str, ...]": _TEXTS}
ARGUMENTS = {
    "uid": {"type": "int", "required": True},
    "shared": {"type": "list", "elements": "str", "required": True},
    "operators": _TEXTS,
    "stack": {"type": "str", "default": ""},
    "stack_dirs": _TEXTS,
    "pythons": _TEXTS,
    "trees": _TEXTS,
    "address": {"type": "str", "default": ""},
    "time_sync": {"type": "bool", "default": False},
    "ports": {"type": "str", "default": ""},
    "shared_storage": {"type": "str", "default": ""},
    "requirements": _TEXTS,
    "index_url": {"type": "str", "default": ""},
    "explain": {"type": "bool", "default": False},
    "wishes": {
        "type": "dict",
        "default": {},
        "options": {field.name: _OF_TYPE[str(field.type)] for field in Wishes.__dataclass_fields__.values()},
    },
}


class ActionModule(ActionBase):
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(ARGUMENTS)
        # An ini inventory gives one text; commas may have spaces behind them.
        shared = tuple(path.strip() for path in given["shared"])
        try:
            trees = tuple(pack(Path(tree), cache() / "pythons") for tree in given["trees"])
            stacks = catalogue.load(local_paths(given["stack_dirs"], _base(task_vars)))
        except TfctlError as error:
            return {**result, "faults": [fault(error.message, error.remedy, "inventory")]}
        remote_tmp = self.get_shell_option("remote_tmp", default="~/.ansible/tmp")
        arguments = {
            "uid": given["uid"],
            "directories": directories(shared, remote_tmp),
            "address": given["address"],
            "pythons": given["pythons"],
            "libraries": sorted({library for tree in trees for library in tree.needs}),
        }
        sent = time.time()
        result.update(self._execute_module("tfctl_facts", arguments, task_vars=task_vars))
        received = time.time()
        if result.get("failed") or result.get("skipped"):
            return result
        try:
            facts = schema.parse(Facts, result["seen"])
        except schema.SchemaError as error:
            raise AnsibleActionFail(f"tfctl_facts: {error}") from None
        wanted = Wanted(
            uid=given["uid"],
            shared=shared,
            operators=tuple(given["operators"]),
            stack=given["stack"],
            wishes=wishes_of(given["wishes"]),
            trees=trees,
            remote_tmp=remote_tmp,
            stacks=stacks,
        )
        if given["explain"]:
            return {**result, "explained": explain(facts, wanted)}
        roots = () if given["shared_storage"] else shared
        known = compared(facts, given["address"], sent, received, given["time_sync"], given["ports"], roots)
        result["compared"] = schema.plain(known)
        plan, faults = decide(facts, wanted)
        if faults:
            return {**result, "faults": faults}
        files = local_paths(given["requirements"], _base(task_vars))
        if files and plan.stack is None:
            message = f"{files[0]}: packages are resolved for a stack, and this host has none"
            return {**result, "faults": [fault(message, "set tfctl_stack for it", "inventory")]}
        try:
            found = [self._packages(Path(file), stacks, plan, facts.machine, given["index_url"]) for file in files]
        except TfctlError as error:
            return {**result, "faults": [fault(error.message, error.remedy, "inventory")]}
        warnings = [*result.get("warnings", []), *plan.notices]
        return {**result, "plan": schema.plain(plan), "requirements": found, "warnings": warnings}

    def _packages(self, file: Path, stacks: Mapping[str, Stack], plan: Plan, machine: str, index: str) -> Packages:
        from tfctl.provision.requirements import packages  # needs packaging, which only this case imports

        assert plan.stack
        return packages(file, stacks[plan.stack.name], plan.stack, machine, not self._task.check_mode, index)


def _base(task_vars: dict[str, Any] | None) -> Path:
    """Return the directory of the inventory, where relative paths in it begin. A list of hosts has none."""
    return Path((task_vars or {}).get("inventory_dir") or Path.cwd())


def wishes_of(given: dict[str, Any]) -> Wishes:
    """Return the settings. A boolean in place of a list of names stands for all names, or for none."""
    settings = {name: value for name, value in given.items() if value is not None}
    names = [name.strip() for name in settings.pop("allow_unverified", [])]
    if len(names) == 1 and names[0].lower() in BOOLEANS:
        names = [ALL] if names[0].lower() in BOOLEANS_TRUE else []
    return Wishes(allow_unverified=tuple(names), **settings)
