"""Which units of jobs live, by the output of `systemctl list-units`. The playbooks' modules use this file too."""

from __future__ import annotations

#: Arguments of systemctl that list the units of tasks and guards. Without --all, it lists units that are active, have
#: failed or have a job queued. It is one reply of systemd, so that no unit is missed that is just between the two
#: halves of a restart.
ARGUMENTS = ("list-units", "--plain", "--no-legend", "--full", "tfctl-*.service", "tfctlguard-*.service")
#: What may be queued for a unit (systemd's job types).
_QUEUED = ("start", "verify-active", "stop", "reload", "restart", "reload-or-start", "try-restart", "try-reload", "nop")


def live_or_queued(text: str) -> list[str]:
    """Return those of the listed units that run, start, end or have a job queued.

    The columns are unit, load state, active state, substate, job and description. The job is shown only if there is
    one.
    """
    found = []
    for line in text.splitlines():
        unit, _, active, _, rest = (line.split(None, 4) + [""] * 5)[:5]
        if unit and (active not in ("inactive", "failed") or rest.split(" ", 1)[0] in _QUEUED):
            found.append(unit)
    return found
