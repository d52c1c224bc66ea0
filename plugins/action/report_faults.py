"""Fail with faults that were found earlier, so that all of them are reported at once.

plugins/modules/report_faults.py documents the arguments and the result.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        faults = self._task.args["faults"]
        if faults:
            result |= {"failed": True, "msg": "; ".join(each["message"] for each in faults), "faults": faults}
        return result
