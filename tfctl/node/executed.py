"""Find out whether systemd could execute a unit's program. A program that ran counts as started, even if it ended."""

from __future__ import annotations

import time

from . import states
from .world import World

#: Seconds to wait for a failed unit's ExecStopPost.
_SETTLE = 5.0
#: Seconds to wait for execution if systemctl does not wait for it itself.
_EXECUTED = 0.3
#: systemd.exec(5): why systemd itself ended what it had forked.
_OWN_REASONS = {
    200: "its working directory cannot be entered", 203: "its program cannot be executed",
    214: "its scheduling policy cannot be set", 217: "its user does not exist",
    218: "its capabilities cannot be set", 226: "a directory that it may write to is missing",
    228: "its system call filter cannot be set",
}  # fmt: skip


def settled(world: World, units: list[str], failed: bool) -> dict[str, dict[str, str]]:
    """Return systemd's properties of the units; after a failed start, wait until they have ended. Raises Refused."""
    if not world.sees_execution():
        time.sleep(_EXECUTED)
        failed = True
    until = time.monotonic() + _SETTLE
    while True:
        shown = world.show(units)
        ending = any(one["ActiveState"] == "deactivating" or one["SubState"] == "start" for one in shown.values())
        if not (failed and ending) or time.monotonic() > until:
            return shown
        time.sleep(0.05)


def why(shown: dict[str, str], ends: list[states.End]) -> str:
    """Say why systemd could not execute a task, or return "". ExecStopPost may then have written no end line either."""
    told = states.told_by_systemd(shown)
    for end in [*ends, *([told] if told else [])]:
        if end.refused:
            return _OWN_REASONS.get(end.exit_code or 0, f"EXIT_STATUS {end.exit_code} of systemd.exec(5)")
    if not ends and not told and shown.get("ActiveState") in ("failed", "inactive"):
        return f"systemd says: {shown.get('Result')}"
    return ""
