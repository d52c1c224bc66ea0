"""Compare the hosts of a play with each other, on the control machine: what no host can see alone.

plugins/modules/compare_hosts.py documents the arguments and the result.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision.inspection import compared_hosts


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables, settings = task_vars or {}, self._task.args
        hosts = variables["ansible_play_hosts"]
        found = {host: variables["hostvars"][host]["preflight_found"].get("compared") for host in hosts}
        others = len(variables["groups"]["all"]) > len(hosts)
        return {**result, **compared_hosts(found, others, settings["canary"], settings["batch"])}
