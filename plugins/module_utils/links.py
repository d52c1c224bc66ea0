"""The link that has a stack's name: which environment it points to, which one before, and which tasks use it.

/opt/tfctl/stacks/tf2.15                 the link
/opt/tfctl/stacks/tf2.15-<12 digits>     an environment; complete once it contains tfctl-stack.json
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, point, read
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import live_units

STACKS = Path("/opt/tfctl/stacks")
MARKER = "tfctl-stack.json"
#: The packages of jobs' requirements files, each in a directory with this marker, which names the environment.
REQUIREMENTS = "/opt/tfctl/requirements"
REQUIREMENTS_MARKER = "tfctl-requirements.json"
#: Python's site module adds the directory that the first line names, where the role job_host installs tfctl_runtime. It
#: runs the second line, which adds the packages of a job behind those of the stack. PYTHONPATH would come before them.
PTH = (
    "tfctl-runtime.pth",
    "/usr/local/lib/tfctl/current/runtime\n"
    "import os, site; 'TFCTL_REQUIREMENTS' in os.environ and site.addsitedir(os.environ['TFCTL_REQUIREMENTS'])\n",
)
#: CUDA's assembler in NVIDIA's wheel. XLA looks for it on the PATH; without it, the driver compiles XLA's code.
PTXAS = "nvidia/cuda_nvcc/bin/ptxas"
#: The line of an environment that adds Horovod to Python's path.
HOROVOD = "tfctl-horovod.pth"
#: CPythons that the control machine has sent.
TREES = "/opt/tfctl/pythons"
#: The environment files of tasks (tfctl/node/names.py).
VARIABLES = "/run/tfctl/env"


def current(link: Path) -> Path | None:
    """Return the environment that the link points to, if it is complete."""
    target = link.parent / link.readlink() if link.is_symlink() else None
    return target if target and (target / MARKER).is_file() else None


def before(link: Path) -> Path | None:
    """Return the environment that the link pointed to before."""
    return newest_but(link, current(link))


def newest_but(link: Path, environment: Path | None) -> Path | None:
    """Return the newest complete environment of the stack other than this one."""
    complete = [each for each in of_stack(link) if (each / MARKER).is_file() and each != environment]
    return max(complete, key=lambda each: (each / MARKER).stat().st_mtime, default=None)


def of_stack(link: Path) -> list[Path]:
    """Return all environments of the stack."""
    name = re.compile(rf"{re.escape(link.name)}-[0-9a-f]{{12}}")
    return [each for each in link.parent.iterdir() if name.fullmatch(each.name)] if link.parent.is_dir() else []


def in_order(link: Path, environment: Path) -> bool:
    """Return whether the link points to the environment, scripts find tfctl_runtime, and XLA finds ptxas."""
    site = site_of(environment)
    linked = link.is_symlink() and str(link.readlink()) == environment.name and read(site / PTH[0]) == PTH[1]
    return linked and ((environment / "bin/ptxas").exists() or not (site / PTXAS).exists())


def switch(link: Path, environment: Path) -> None:
    """Point the link to the environment in one step. Keep the previous environment and delete the stack's others.

    Raises ModuleFailed while a task runs with the stack, because its files would change under it.
    """
    now = current(link)
    if now not in (None, environment):
        refuse_under_a_job(link)
    site = site_of(environment)
    (site / PTH[0]).write_text(PTH[1], encoding="utf-8")
    if (site / PTXAS).exists():
        point(environment / "bin/ptxas", f"../{site.relative_to(environment)}/{PTXAS}")
    previous = newest_but(link, environment) if now in (None, environment) else now
    point(link, environment.name)
    for old in of_stack(link):
        if old not in (environment, previous):
            drop(old)


def drop(environment: Path) -> None:
    """Delete an environment, the packages that jobs added to it, and its CPython tree if no other one uses it."""
    tree = Path(os.path.realpath(environment / "bin/python")).parents[1]
    shutil.rmtree(environment)
    for marker in Path(REQUIREMENTS).glob(f"*/{REQUIREMENTS_MARKER}"):
        if json.loads(marker.read_text(encoding="utf-8"))["environment"] == environment.name:
            shutil.rmtree(marker.parent)
    others = (Path(os.path.realpath(each)) for each in environment.parent.glob("*-*/bin/python"))
    if tree.parent == Path(TREES) and not any(each.is_relative_to(tree) for each in others):
        shutil.rmtree(tree)


def refuse_under_a_job(link: Path) -> None:
    """Raise ModuleFailed if a task runs whose PATH contains the link, or if it is unknown whether one runs."""
    files = [path for path in sorted(Path(VARIABLES).glob("tfctl-*.env")) if f"{link}/bin" in (read(path) or "")]
    alive = live_units() if files else []
    units = [f"{path.stem}.service" for path in files if f"{path.stem}.service" in alive]
    if units:
        message = f"{', '.join(units)}: running with {link.name}, whose files would change"
        raise ModuleFailed(message, "wait until the job ends, or run tfctl stop")


def site_of(environment: Path) -> Path:
    """Return the directory of installed packages."""
    return next(environment.glob("lib/python3.*/site-packages"), environment / "lib")
