"""The environment and the command line of a local task."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tfctl
from tfctl.errors import PreflightFailed
from tfctl.local.runtimes import Runtime
from tfctl.model import env
from tfctl.model.job import Job
from tfctl.model.task import Task

_RUNTIME = Path(tfctl.__file__).parents[1] / "tfctl_runtime"


@contextmanager
def temporary_directories() -> Iterator[tuple[Path, Path]]:
    """Yield a directory for PYTHONPATH that holds only tfctl_runtime: the script's Python need not have it installed,
    and sees nothing else of tfctl's own Python. And yield an empty one for programs."""
    with tempfile.TemporaryDirectory(prefix="tfctl-run-") as folder:
        library, programs = Path(folder, "lib"), Path(folder, "bin")
        library.mkdir()
        programs.mkdir()
        (library / _RUNTIME.name).symlink_to(_RUNTIME)
        yield library, programs


def environment(job: Job, task: Task, environ: Mapping[str, str], library: Path, runtime: Runtime) -> dict[str, str]:
    """Return the user's environment plus what a node would set (env.environment).

    PATH begins with the programs of ``runtime`` and is otherwise the user's, unless the job sets it. ``library`` is the
    first entry of PYTHONPATH. As on a node, proxy variables are removed, and so are those of an outer job.
    """
    given = env.environment(job, task)
    path = given.pop("PATH") if "PATH" in task.slot.env else environ.get("PATH", os.defpath)
    given["PATH"] = os.pathsep.join([*runtime.programs, path])
    if any(name.isdigit() for name in task.gpus or ()):  # the user's GPU numbers follow the user's order
        del given["CUDA_DEVICE_ORDER"]
    kept = {
        name: value
        for name, value in environ.items()
        if name not in env.PROXY_VARIABLES and name != "TF_CONFIG" and not name.startswith("TFCTL_")
    }
    found = {**kept, **given}
    found["PYTHONPATH"] = ":".join(filter(None, (str(library), *runtime.modules, found.get("PYTHONPATH"))))
    if runtime.environment is not None:
        found["VIRTUAL_ENV"] = str(runtime.environment.path)
        found.pop("PYTHONHOME", None)  # it would point the environment's Python to other modules
    return found


def words(job: Job, task: Task, environ: Mapping[str, str], code: Path) -> tuple[str, ...]:
    """Return the task's full command line. Raise PreflightFailed if its program does not exist."""
    found = env.words(job, task)
    program = found[0]
    if "/" in program and not (code / program).is_file():
        raise PreflightFailed(f"{task}: there is no program {program} in {code}", "correct `command` in the job file")
    if "/" not in program and shutil.which(program, path=environ.get("PATH")) is None:
        remedy = "install it, or correct `command` in the job file"
        if program.startswith("python"):
            remedy = "activate the virtual environment of the script, or name a Python with --python PATH"
        raise PreflightFailed(f"{task}: there is no program {program} on PATH", remedy)
    return env.unit_words(job, task)
