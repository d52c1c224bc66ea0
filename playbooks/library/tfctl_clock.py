#!/usr/bin/python
"""Find the service that keeps a host's clock, what it lacks, and whether the clock is synchronized."""

from __future__ import annotations

import subprocess
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_fault import FAILED, fail, fault

DOCUMENTATION = """
module: tfctl_clock
short_description: Look at what keeps a host's clock
description:
  - Changes nothing. Returns C(service), who keeps the clock or is to keep it, C(unit), C(file) for its servers, and
    C(packages) that are missing. In a container all are empty, for its clock is its host's.
options:
  servers: {type: list, elements: str, required: true, description: "Whom to ask; none, as the distribution says."}
  packager: {type: str, required: true, choices: [apt-get, dnf], description: The host's package manager.}
  insist: {type: bool, default: false, description: Fail unless the clock is in step within 40 s.}
"""

CHRONY = {"apt-get": ("chrony.service", "/etc/chrony/chrony.conf"), "dnf": ("chronyd.service", "/etc/chrony.conf")}
TIMESYNCD = ("systemd-timesyncd.service", "/etc/systemd/timesyncd.conf.d/tfctl.conf")
OTHERS = ("ntp.service", "ntpd.service", "ntpsec.service", "openntpd.service")
LIMIT_S = 40


def main():
    module = AnsibleModule(
        argument_spec={
            "servers": {"type": "list", "elements": "str", "required": True},
            "packager": {"type": "str", "required": True, "choices": list(CHRONY)},
            "insist": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    if succeeds("systemd-detect-virt", "--quiet", "--container"):
        module.warn("a container: its clock is its host's, and was left alone")
        module.exit_json(changed=False, service="", unit="", file="", packages=[])
    found = keeper(wanted["packager"])
    if found["service"] == "another" and wanted["servers"]:
        module.warn(f"{found['unit']} keeps the clock, and was not told of tfctl_ntp_servers")
    if wanted["insist"] and not in_step(found["service"]):
        asked = " ".join(wanted["servers"]) or "the distribution's servers"
        message = f"the clock is not in step within {LIMIT_S} s: {found['unit']} asks {asked}"
        fail(module, [fault(message, "let {host} reach them, by UDP port 123", FAILED)])
    module.exit_json(changed=False, **found)


def keeper(packager):
    """Return the active time service, else chrony."""
    unit, file = CHRONY[packager]
    for other in OTHERS:
        if is_active(other):
            return {"service": "another", "unit": other, "file": "", "packages": []}
    if is_active(TIMESYNCD[0]):
        return {"service": "timesyncd", "unit": TIMESYNCD[0], "file": TIMESYNCD[1], "packages": []}
    there = succeeds("systemctl", "cat", unit)
    return {"service": "chrony", "unit": unit, "file": file, "packages": [] if there else ["chrony"]}


def in_step(service):
    words = (
        ["chronyc", "-n", "waitsync", "1"] if service == "chrony" else ["timedatectl", "show", "-p", "NTPSynchronized"]
    )
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode == 0 and "=no" not in done.stdout:
            return True
        time.sleep(1)
    return False


def is_active(unit):
    return succeeds("systemctl", "--quiet", "is-active", unit)


def succeeds(*words):
    return subprocess.run(words, capture_output=True, timeout=20, check=False).returncode == 0


if __name__ == "__main__":
    main()
