"""The environment and the command line of a local task."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tfctl
from tfctl.errors import PreflightFailed
from tfctl.model import env
from tfctl.model.job import Job
from tfctl.model.task import Task

_RUNTIME = Path(tfctl.__file__).parents[1] / "tfctl_runtime"


@contextmanager
def runtime_library() -> Iterator[Path]:
    """Yield a directory for PYTHONPATH that holds only tfctl_runtime: the script's Python need not have it installed,
    and sees nothing else of tfctl's own Python."""
    with tempfile.TemporaryDirectory(prefix="tfctl-run-") as folder:
        Path(folder, _RUNTIME.name).symlink_to(_RUNTIME)
        yield Path(folder)


def environment(job: Job, task: Task, environ: Mapping[str, str], library: Path) -> dict[str, str]:
    """Return the user's environment plus what a node would set (env.environment).

    PATH stays the user's unless the job sets it, so that the active Python runs. ``library`` is the first entry of
    PYTHONPATH. As on a node, proxy variables are removed, and so are those of an outer job.
    """
    given = env.environment(job, task)
    if "PATH" not in task.slot.env:
        del given["PATH"]
    if any(name.isdigit() for name in task.gpus or ()):  # the user's GPU numbers follow the user's order
        del given["CUDA_DEVICE_ORDER"]
    kept = {
        name: value
        for name, value in environ.items()
        if name not in env.PROXY_VARIABLES and name != "TF_CONFIG" and not name.startswith("TFCTL_")
    }
    found = {**kept, **given}
    found["PYTHONPATH"] = ":".join(filter(None, (str(library), found.get("PYTHONPATH"))))
    return found


def words(job: Job, task: Task, environ: Mapping[str, str], code: Path) -> tuple[str, ...]:
    """Return the task's full command line. Raise PreflightFailed if its program does not exist."""
    found = env.words(job, task)
    program = found[0]
    if "/" in program and not (code / program).is_file():
        raise PreflightFailed(f"{task}: there is no program {program} in {code}")
    if "/" not in program and shutil.which(program, path=environ.get("PATH")) is None:
        remedy = "activate the environment in which the script runs" if program.startswith("python") else ""
        raise PreflightFailed(f"{task}: there is no program {program} on PATH", remedy)
    return env.unit_words(job, task)
