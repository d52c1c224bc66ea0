"""Report the events of an ansible-playbook run as JSON lines on the file descriptor TFCTL_EVENTS_FD.

    {"event": "play", "hosts": [NAME], "batch": [NAME], "serial": [SIZE]}
                                                              in inventory order; serial is empty without batches
    {"event": "task", "role": ROLE or "", "task": NAME}
    {"event": "host", "host", "role", "task", "state", "result"}
    {"event": "waits", "host", "text", "at_most_s"}           waits for another run, which the text describes
    {"event": "stats", "hosts": {NAME: {"ok", "changed", "failures", "unreachable", ...}}}

``state`` is ok, changed, failed, unreachable or skipped; ``result`` holds what says why (TaskResult in
tfctl/provision/results.py). Read by tfctl/provision/events.py.

The file descriptor TFCTL_ALIVE_FD reaches end of file when tfctl ends; the run is then interrupted as by Ctrl-C, and
its temporary files (TFCTL_RUN_FOLDER) are removed.
"""

from __future__ import annotations

DOCUMENTATION = """
name: events
type: stdout
short_description: Tells tfctl what happens, one JSON object a line
description:
  - C(tfctl provision) runs ansible-playbook with this plugin, and sets three environment variables for it.
  - Writes to the file descriptor C(TFCTL_EVENTS_FD), and nothing to stdout. The objects are the events C(play),
    C(task), C(host), C(waits) and C(stats), which the docstring of the file describes.
  - When the file descriptor C(TFCTL_ALIVE_FD) reaches end of file, interrupts the run and removes its temporary files,
    which are in C(TFCTL_RUN_FOLDER).
requirements: [the package tfctl in the Python of Ansible]
"""

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision.results import diffs_of, kept_of
from tfctl.provision.run_folder import RunFolder

COLLECTION = "tfctl.cluster."
# Actions that Ansible performs itself or only on the control machine. They are not reported.
UNTOLD = (
    "meta", "validate_argument_spec", "include_tasks", "import_tasks", "include_role", "import_role", "set_fact",
    "add_host", "compare_hosts", "report_faults", "due",
)  # fmt: skip


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "events"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        descriptor, alive = int(os.environ["TFCTL_EVENTS_FD"]), int(os.environ["TFCTL_ALIVE_FD"])
        # A persistent ssh process must not keep tfctl's pipe open.
        os.set_inheritable(descriptor, False)
        os.set_inheritable(alive, False)
        self._file = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", closefd=False)
        RunFolder(Path(os.environ["TFCTL_RUN_FOLDER"])).end_with(alive)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        variables = play.get_variable_manager().get_vars(play=play)
        hosts, batch = variables["ansible_play_hosts_all"], variables["ansible_play_batch"]
        self._tell("play", hosts=hosts, batch=batch, serial=play.serial)

    def v2_playbook_on_task_start(self, task: Any, **_: object) -> None:
        if task.action.rpartition(".")[2] not in UNTOLD:
            self._tell("task", **named(task))

    def v2_runner_on_ok(self, result: Any) -> None:
        self._host(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_failed(self, result: Any, **_: object) -> None:
        self._host(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        # Ansible also calls this for a task that ignores it, such as one that was delegated to another host.
        self._host(result, "ok" if result.task.ignore_unreachable else "unreachable")

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._host(result, "skipped")

    def v2_runner_retry(self, result: Any) -> None:
        """Report that a module of ours waits for another run. It retries every 3 s; report at once and each minute."""
        if result.result["attempts"] % 20 == 1:
            for fault in result.result.get("faults", []):
                self._tell("waits", host=result.host.get_name(), text=fault["message"], at_most_s=fault["patience_s"])

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._tell("stats", hosts={host: stats.summarize(host) for host in stats.processed})

    def _host(self, result: Any, state: str) -> None:
        told = kept_of(result.result, result.exception)
        untold = result.task.action.rpartition(".")[2] in UNTOLD and state in ("ok", "skipped")
        if untold and not told.get("drifts") and not told.get("warnings"):
            return
        # What a role says with debug is meant for the owner of the host.
        if result.task.action.rpartition(".")[2] == "debug" and state == "ok":
            told["warnings"] = [str(result.result.get("msg", ""))]
        # A module that was not asked for --diff returns a diff all the same.
        diff = diffs_of(result.result) if result.task.diff or state == "failed" else []
        if diff:
            told["diff"] = self._get_diff(diff)
        self._tell("host", host=result.host.get_name(), **named(result.task), state=state, result=told)

    def _tell(self, event: str, **more: object) -> None:
        self._file.write(json.dumps({"event": event, **more}, default=str) + "\n")  # flushed: line-buffered


def named(task: Any) -> dict[str, str]:
    # Use the role object, because the task's name may already start with the role's name.
    own = "preflight" if task.action == f"{COLLECTION}due" else ""  # it reports what the role preflight has found
    return {
        "role": task._role.get_name().removeprefix(COLLECTION) if task._role else own,
        "task": task.name or task.action,
    }
