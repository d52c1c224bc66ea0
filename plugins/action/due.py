"""Decide on the control machine which roles run on a host: see the function `choose` in tfctl/provision/due.py.

plugins/modules/due.py has the documentation.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl import schema
from tfctl.node.receipts import CheckedReceipt
from tfctl.provision.due import Wanted, choose, code_digest, role_of

#: The directory of the collection.
COLLECTION = Path(__file__).parents[2]
#: Ansible imports this file once, before it forks a process for each host.
CODE = code_digest(COLLECTION)


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset(("faults", "roles", "receipts", "full", "live", "connected"))

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given, variables = self._task.args, task_vars or {}
        if faults := given.get("faults"):
            return {**result, "failed": True, "msg": "; ".join(each["message"] for each in faults), "faults": faults}
        receipts = {each["role"]: schema.parse(CheckedReceipt, each) for each in given["receipts"]}
        chosen = choose(
            CODE,
            {part: self._wanted(part, variables) for part, has in given["roles"].items() if boolean(has)},
            receipts,
            check=self._task.check_mode,
            full=boolean(given.get("full", False)),
            tags=variables["ansible_run_tags"],
            skipped=variables["ansible_skip_tags"],
            live=[part for part, runs in given.get("live", {}).items() if boolean(runs)],
        )
        return {**result, "changed": False, "connected": boolean(given.get("connected", False)), **chosen}

    def _wanted(self, part: str, variables: dict[str, Any]) -> Wanted:
        """Return the inputs of a part, and what it manages, with the variables that its role would see."""
        role, entry = role_of(part)
        folder = COLLECTION / "roles" / role
        options = self._load(folder / "meta/argument_specs.yml")["argument_specs"][entry]["options"]
        defaults, own = self._load(folder / "defaults/main.yml"), self._load(folder / "vars/main.yml")
        more = {"role_path": str(folder), "tfctl_role": part, "nvidia_library_name": part}
        seen = {**defaults, **variables, **own, **more}
        templar = self._templar.copy_with_new_env(searchpath=[str(folder)], available_variables=seen)
        try:
            inputs = {name: templar.template(seen[name]) for name in options if name in seen}
            return Wanted(inputs, templar.template(seen["provision_manages"][part]))
        except AnsibleError as error:
            raise AnsibleActionFail(f"the variables of the role {role} cannot be read: {error}") from error

    def _load(self, path: Path) -> dict[str, Any]:
        # Each host has a process of its own, in which no file is read twice: do not copy what has been read.
        load = partial(self._loader.load_from_file, cache="none", unsafe=True, trusted_as_template=True)
        return load(str(path)) or {} if path.exists() else {}
