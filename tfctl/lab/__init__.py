"""A real cluster on one machine: nodes with systemd, sshd and journald, booted by systemd-nspawn.

    up(LabSpec(nodes=4), print)          create or complete it
    take("lab", "bare", print)           save it, for up(LabSpec(name="other", snapshot="bare"), print)
    status("lab").nodes                  list its nodes and their states
    down("lab", print)                   remove it completely

It needs Linux, root and some packages, which `up` names if they are missing. All functions raise TfctlError.
"""

from __future__ import annotations

from tfctl.lab.lifecycle import down, up
from tfctl.lab.snapshot import forget, take
from tfctl.lab.spec import LabSpec, parse_suites
from tfctl.lab.status import LabStatus, NodeStatus, status

__all__ = ["LabSpec", "LabStatus", "NodeStatus", "down", "forget", "parse_suites", "status", "take", "up"]
