"""Fail with faults that were found earlier, so that all of them are reported at once."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

DOCUMENTATION = """
module: report_faults
short_description: Fail with these faults
options:
  faults: {description: Faults as tfctl/provision/faults.py describes them., type: list, required: true}
"""


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        faults = self._task.args["faults"]
        if faults:
            result |= {"failed": True, "msg": "; ".join(each["message"] for each in faults), "faults": faults}
        return result
