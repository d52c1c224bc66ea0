#!/usr/bin/python
"""Inspect a host's driver again: whether it works, whether a reboot is needed, and what prevents one."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_fault import FAILED, fail, fault
from ansible.module_utils.tfctl_gpu_driver import broken, reboot_objection, reboot_reason
from ansible.module_utils.tfctl_gpu_facts import first_line, look, run

DOCUMENTATION = """
module: tfctl_gpu_state
short_description: Say whether a host's driver works, and whether it needs a reboot
options:
  insist: {type: bool, default: false, description: "Whether a host whose driver does not work is a failed one."}
  control: {type: dict, required: true, description: "machine_id, boot_id and local, of the machine tfctl runs on."}
"""

UNITS = Path("/run/systemd/system")  # the jobs' units; other units are in /etc


def main():
    module = AnsibleModule(
        argument_spec={"control": {"type": "dict", "required": True}, "insist": {"type": "bool", "default": False}},
        supports_check_mode=True,
    )
    gpu, control = look(), module.params["control"]
    if gpu is None:
        module.fail_json(msg="the GPU is gone from the PCI bus; dmesg says more")
    control["local"] = str(control["local"]).lower() == "true"
    host = {"machine_id": first_line(Path("/etc/machine-id")), "boot_id": boot_id()}
    reason = reboot_reason(gpu)
    objection, remedy = reboot_objection(gpu, jobs_running(), control, host) if reason else ("", "")
    if module.params["insist"]:
        message = f"needs a reboot: {reason}" if reason else broken(gpu)
        message += f". tfctl does not reboot it: {objection}" if objection else ""
        if message:
            helps = remedy or ("tfctl provision --reboot, or reboot it yourself and provision again" if reason else "")
            fail(module, [fault(message, helps, FAILED)])
    module.exit_json(changed=False, loaded=gpu["loaded"], reason=reason, objection=objection, boot_id=boot_id())


def boot_id():
    return first_line(Path("/proc/sys/kernel/random/boot_id"))


def jobs_running():
    """Return the units of jobs that have not ended."""
    words = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "tfctl-*.service"]
    rows = [line.split() for line in run(words)[1].splitlines()]
    alive = [row[0] for row in rows if row[2:3] and row[2] in ("active", "activating", "deactivating", "reloading")]
    return [name for name in alive if (UNITS / name).exists()]


if __name__ == "__main__":
    main()
