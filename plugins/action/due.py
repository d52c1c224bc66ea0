"""Decide on the control machine which roles run on a host: see the function `due` in tfctl/provision/due.py.

plugins/modules/due.py documents the arguments and the result.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl import schema
from tfctl.node.receipts import CheckedReceipt
from tfctl.provision.due import choose, code_digests

#: The directory of the collection.
COLLECTION = Path(__file__).parents[2]
#: Digests of the code of all roles. Ansible imports this file once, before it forks a process for each host.
CODE = code_digests(COLLECTION)


class ActionModule(ActionBase):
    _requires_connection = False
    _VALID_ARGS = frozenset(("faults", "roles", "receipts", "full", "unskipped", "momentary", "connected"))

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given, variables = self._task.args, task_vars or {}
        if faults := given.get("faults"):
            return {**result, "failed": True, "msg": "; ".join(each["message"] for each in faults), "faults": faults}
        receipts = {each["role"]: schema.parse(CheckedReceipt, each) for each in given["receipts"]}
        roles = [role for role, has in given["roles"].items() if boolean(has)]
        wanted = {role: self._template(role, variables, given.get("momentary", {}).get(role, ())) for role in roles}
        chosen = choose(
            CODE,
            wanted,
            receipts,
            check=self._task.check_mode,
            full=boolean(given.get("full", False)),
            named=variables["ansible_run_tags"],
            unskipped=[role for role, always in given.get("unskipped", {}).items() if boolean(always)],
        )
        return {**result, "changed": False, "connected": boolean(given.get("connected", False)), **chosen}

    def _template(
        self, role: str, variables: dict[str, Any], momentary: Collection[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the inputs of a role, and what it manages, with the variables that the role would see.

        The inputs are the values of its options and what it manages, with the defaults of the variables ``momentary``.
        """
        folder, manages = COLLECTION / "roles" / role, f"{role}_manages"
        specs = self._load(folder / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        own = {**self._load(folder / "vars/main.yml"), **self._load(folder / "vars/receipt.yml")}
        defaults = self._load(folder / "defaults/main.yml")
        seen = {**defaults, **variables, **own, "role_path": str(folder)}
        lasting = {**seen, **{name: defaults[name] for name in momentary}}
        see = partial(self._templar.copy_with_new_env, searchpath=[str(folder)])
        try:
            then = see(available_variables=lasting)
            inputs = {name: then.template(lasting[name]) for name in (*specs, manages) if name in lasting}
            return inputs, see(available_variables=seen).template(seen[manages]) if momentary else inputs[manages]
        except AnsibleError as error:
            raise AnsibleActionFail(f"the variables of the role {role} cannot be read: {error}") from error

    def _load(self, path: Path) -> dict[str, Any]:
        # Each host has a process of its own, in which no file is read twice: do not copy what has been read.
        load = partial(self._loader.load_from_file, cache="none", unsafe=True, trusted_as_template=True)
        return load(str(path)) or {} if path.exists() else {}
