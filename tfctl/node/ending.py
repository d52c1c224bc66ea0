"""End units and remove their files: for a start that is undone, for the next start of a job, and for stop."""

from __future__ import annotations

import contextlib
import time
from typing import Callable

from . import again, book, names, states
from .world import World, host

#: Seconds for the kernel to end what was killed.
_KILLED = 5.0


def end(world: World, units: list[str], grace: float, beat: Callable[[], object] = lambda: None) -> dict[str, str]:
    """Stop the units in one call; what lives after ``grace`` seconds is killed. What lives on, each with a sentence.

    ``beat`` is called again and again meanwhile. Raises Refused.
    """
    if not units:
        return {}
    # All of them, for one may be about to start. What is asked of systemd is done even when this process ends here.
    world.manage("stop", "--no-block", "--", *units)
    alive = _wait(world, units, grace, beat)
    if alive:
        world.manage("kill", "--signal=SIGKILL", "--", *alive)
        alive = _wait(world, alive, _KILLED, beat)
    return {unit: f"{unit} on {host()} does not end, not even by SIGKILL" for unit in alive}


def forget(world: World, job: str, tasks: list[tuple[str, int]], *, keep: bool) -> None:
    """Remove unit and environment files of tasks that have ended, and have systemd forget the units. Raises Refused.

    ``keep``: a restart of the job may want them (tfctl.node.again).
    """
    units = [names.unit(job, *task) for task in tasks]
    if not units:
        return
    if keep:
        again.put_by(world, job, tasks)
    for task in tasks:
        for path in (names.unit_file(job, *task), names.env_file(job, *task)):
            with contextlib.suppress(FileNotFoundError):
                world.at(path).unlink()
    world.manage("reset-failed", "--", *units)  # fails for those that never did; nothing hangs on it
    world.settle(units, "not-found")
    if not any(name.startswith(f"tfctl-{job}-") for name in book.listing(world.at(names.UNITS))):
        world.manage("stop", "--no-block", "--", names.job_slice(job))  # by itself it would stay, empty


def _wait(world: World, units: list[str], limit: float, beat: Callable[[], object]) -> list[str]:
    """Those that still live after so many seconds."""
    until, pause = time.monotonic() + limit, 0.02
    runs: dict[str, str | None] = {}
    while True:
        # Once one has ended the next start may take its name: by the invocation it is another.
        units = [
            unit
            for unit, shown in world.show(units).items()
            if states.is_live(shown) and runs.setdefault(unit, shown.get("InvocationID")) == shown.get("InvocationID")
        ]
        if not units or time.monotonic() > until:
            return units
        beat()
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)
