"""A real cluster on one machine: nodes with systemd, sshd and journald, booted by systemd-nspawn.

    up(LabSpec(nodes=4), print)          makes it, or completes it
    take("lab", "bare", print)           keeps it as it is; up(LabSpec(name="other", snapshot="bare"), print)
    status("lab").nodes                  what runs
    down("lab", print)                   nothing is left

Needs Linux, root and the packages that `up` names when they are missing. Everything raises TfctlError.
"""

from __future__ import annotations

from tfctl.lab.lifecycle import down, up
from tfctl.lab.snapshot import forget, take
from tfctl.lab.spec import LabSpec, parse_suites
from tfctl.lab.status import LabStatus, NodeStatus, status

__all__ = ["LabSpec", "LabStatus", "NodeStatus", "down", "forget", "parse_suites", "status", "take", "up"]
