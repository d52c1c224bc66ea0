"""A stack's name on a host is a link to one of its environments: the current one, the previous one, and their users.

/opt/tfctl/stacks/tf2.15                 the link
/opt/tfctl/stacks/tf2.15-<12 digits>     an environment; complete once it contains tfctl-stack.json
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from ansible.module_utils.tfctl_machine import Failed, point, read

MARKER = "tfctl-stack.json"
#: Python's site module adds the directory named here if it exists; the role job_host puts tfctl_runtime into it.
PTH = ("tfctl-runtime.pth", "/usr/local/lib/tfctl/current/runtime\n")
#: CPython trees sent from the control machine.
TREES = "/opt/tfctl/pythons"
#: The environment files of tasks (tfctl/node/names.py).
VARIABLES = "/run/tfctl/env"
LIMIT_S = 60


def current(link):
    """Return the environment that the link points to, if it is complete, or None."""
    target = link.parent / link.readlink() if link.is_symlink() else None
    return target if target and (target / MARKER).is_file() else None


def before(link):
    """Return the environment that the link pointed to before, or None."""
    return newest_but(link, current(link))


def newest_but(link, environment):
    """Return the newest complete environment of the stack other than this one, or None."""
    whole = [each for each in of_stack(link) if (each / MARKER).is_file() and each != environment]
    return max(whole, key=lambda each: (each / MARKER).stat().st_mtime, default=None)


def of_stack(link):
    name = re.compile(rf"{re.escape(link.name)}-[0-9a-f]{{12}}")
    return [each for each in link.parent.iterdir() if name.fullmatch(each.name)] if link.parent.is_dir() else []


def in_order(link, environment):
    """Return whether the link points to the environment and scripts find tfctl_runtime."""
    leads = link.is_symlink() and str(link.readlink()) == environment.name
    return leads and read(site_of(environment) / PTH[0]) == PTH[1].encode()


def switch(link, environment):
    """Point the link to the environment, atomically. Keep the previous one and remove the stack's others.

    Raises Failed while a task runs with the stack, because its files would change under it.
    """
    led = current(link)
    if led not in (None, environment):
        refuse_under_a_job(link)
    (site_of(environment) / PTH[0]).write_text(PTH[1], encoding="utf-8")
    stays = newest_but(link, environment) if led in (None, environment) else led
    point(link, environment.name)
    for old in of_stack(link):
        if old not in (environment, stays):
            drop(old)


def drop(environment):
    """Remove an environment, with its CPython tree if no other environment uses it."""
    tree = Path(os.path.realpath(environment / "bin/python")).parents[1]
    shutil.rmtree(environment)
    others = (Path(os.path.realpath(each)) for each in environment.parent.glob("*-*/bin/python"))
    if tree.parent == Path(TREES) and not any(each.is_relative_to(tree) for each in others):
        shutil.rmtree(tree)


def refuse_under_a_job(link):
    """Raise Failed if a task runs with the stack."""
    units = running(link)
    if units:
        told = ", ".join(units)
        raise Failed(f"{told}: running with {link.name}, which would change", "wait for its end, or tfctl stop")


def running(link):
    """Return the units of live tasks whose PATH goes through the link."""
    units = [
        f"{path.stem}.service"
        for path in sorted(Path(VARIABLES).glob("tfctl-*.env"))
        if f"{link}/bin".encode() in (read(path) or b"")
    ]
    return [unit for unit in units if state_of(unit) in ("active", "activating", "reloading", "deactivating")]


def state_of(unit):
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        words = ["systemctl", "is-active", unit]
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout.strip()
    return ""


def site_of(environment):
    return next(environment.glob("lib/python3.*/site-packages"), environment / "lib")
