"""Download the wheels of lock files to the control machine, where this plugin runs. See tfctl/provision/wheels.py.

plugins/modules/wheels.py documents the arguments and the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision.wheels import Download, DownloadFailed, archive_of, files_of

ARGUMENTS = {
    "locks": {"type": "list", "elements": "path", "required": True},
    "source": {"type": "str", "default": ""},
    "python": {"type": "str", "required": True},
    "machine": {"type": "str", "required": True},
    "folder": {"type": "path", "required": True},
    "index_url": {"type": "str", "default": "", "no_log": True},
}


class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(ARGUMENTS)
        wanted = Download(
            [Path(lock) for lock in given["locks"]], given["python"], given["machine"], given["index_url"]
        )
        folder = Path(given["folder"])
        try:
            if given["source"]:
                return {**result, "path": str(archive_of(wanted, given["source"], folder))}
            return {**result, "files": files_of(wanted, folder)}
        except DownloadFailed as failed:
            return {**result, "failed": True, "msg": str(failed)}
        except OSError as error:
            return {**result, "failed": True, "msg": f"{error.filename or folder}: {error.strerror}"}
