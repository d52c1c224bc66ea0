"""Judge the state of a host's NVIDIA driver, as the module gpu_state gathers it."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision.decide import readings, reboot
from tfctl.provision.decide.reboot import Control

ARGUMENTS = {
    "insist": {"type": "bool", "default": False},
    "expected": {"type": "int", "default": 0},
    "control": {
        "type": "dict",
        "required": True,
        "options": {"machine_id": {"type": "str"}, "boot_id": {"type": "str"}, "local": {"type": "bool"}},
    },
}


class ActionModule(ActionBase):
    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(ARGUMENTS)
        result.update(self._execute_module("tfctl.cluster.gpu_state", {}, task_vars=task_vars))
        if result.get("failed") or result.get("skipped"):
            return result
        state = readings.driver_state(result.pop("state"))
        return {**result, **reboot.report(state, Control(**given["control"]), given["insist"], given["expected"])}
