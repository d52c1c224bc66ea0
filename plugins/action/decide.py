"""Decide what a host gets: gather its facts there, with the module facts, and decide on the control machine.

plugins/modules/decide.py documents the arguments and the result.
"""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import filter_loader, test_loader
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl import schema
from tfctl.errors import TfctlError
from tfctl.model import stacks
from tfctl.provision.decide import readings
from tfctl.provision.inspection import ARGUMENTS, Inspection, peers, refused, settings_of, with_variables

#: What each process would otherwise load: Ansible imports this file once, before it forks a process for each host.
LOADED = (stacks.load(()), filter_loader.get("default"), test_loader.get("defined"))
# They share what there is by then, so looking for garbage in it would only cost each of them time and memory.
gc.freeze()


class ActionModule(ActionBase):
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        validated = ArgumentSpecValidator(ARGUMENTS).validate(self._task.args)
        given, wrong = validated.validated_parameters, validated.error_messages
        if wrong:  # in provision.yml, the role does not validate its variables
            raise AnsibleActionFail("\n".join(["Validation of arguments failed:", *map(with_variables, wrong)]))
        settings = settings_of(given)
        # Where relative paths of the inventory begin. A list of hosts has no directory.
        base = Path((task_vars or {}).get("inventory_dir") or Path.cwd())
        try:
            inspection = Inspection(settings, base, self.get_shell_option("remote_tmp", default="~/.ansible/tmp"))
        except TfctlError as error:
            return {**result, "faults": [refused(error)]}
        asked, sent = inspection.questions(peers(task_vars or {})), time.time()
        result.update(self._execute_module("tfctl.cluster.facts", asked, task_vars=task_vars))
        received = time.time()
        if result.get("failed") or result.get("skipped"):
            return result
        try:
            facts = readings.read(result["seen"])
        except schema.SchemaError as error:
            raise AnsibleActionFail(f"facts: {error}") from None
        decided = inspection.decide(facts, sent, received, write=not self._task.check_mode)
        warnings = [*result.get("warnings", []), *decided.pop("notices", ())]
        return {**result, **decided, "warnings": warnings}
