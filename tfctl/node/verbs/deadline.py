"""The verb `deadline`: end a task at its deadline. Only systemd asks for it (tfctl.node.deadlines), with arguments:
`tfctl-node deadline JOB RUN ROLE INDEX`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import jobstore, reservations, states
from ..system import System
from ..units import InstalledUnit, installed_units


def run(system: System, words: Sequence[str]) -> None:
    """End the task that the words name, unless it has ended or is being stopped, or the run is not the current one.

    Raises RequestRefused, OSError.
    """
    job, run, role, index = words
    with reservations.lock(system, reservations.LONGEST_S):
        attempt = jobstore.latest(system, job)
        for unit in installed_units(system, job):
            if (unit.run, unit.task) == (run, (role, int(index))) and _is_overdue(system, attempt, unit):
                try:
                    jobstore.mark_overdue(system, job, attempt, *unit.task)
                finally:  # on a full disk too. systemd sends SIGKILL after TimeoutStopSec=
                    system.manage("stop", "--no-block", "--", unit.unit)


def _is_overdue(system: System, attempt: int, unit: InstalledUnit) -> bool:
    end = states.end_from_systemd(unit.properties)
    has_succeeded = end is not None and end.exit_code == 0  # it is live as long as ExecStopPost runs
    stopped = jobstore.marked(system, unit.job, attempt, *unit.task) is not None
    return unit.live and not has_succeeded and not stopped
