"""What a task finds in its environment here, and the words that start it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import tfctl
from tfctl.errors import PreflightFailed
from tfctl.model import env
from tfctl.model.job import Job, Task

_RUNTIME = Path(tfctl.__file__).parents[1] / "tfctl_runtime"


@contextmanager
def runtime_library() -> Iterator[Path]:
    """A directory for PYTHONPATH in which there is tfctl_runtime alone: the script's Python need not have it, and
    finds nothing else of the Python that runs tfctl."""
    with tempfile.TemporaryDirectory(prefix="tfctl-run-") as folder:
        Path(folder, _RUNTIME.name).symlink_to(_RUNTIME)
        yield Path(folder)


def environment(job: Job, task: Task, environ: Mapping[str, str], library: Path) -> dict[str, str]:
    """The user's own environment, and in it what a node would set (env.environment), with these differences:

    PATH is the user's, so that the active Python runs; ``library`` goes first on PYTHONPATH. As on a node, proxies and
    what an outer job was told are taken out.
    """
    told = env.environment(job, task)
    if "PATH" not in task.slot.env:
        del told["PATH"]
    if any(name.isdigit() for name in task.gpus or ()):  # the user's own numbers, in the user's own order
        del told["CUDA_DEVICE_ORDER"]
    kept = {
        name: value
        for name, value in environ.items()
        if name not in env.PROXY_VARIABLES and name != "TF_CONFIG" and not name.startswith("TFCTL_")
    }
    found = {**kept, **told}
    found["PYTHONPATH"] = ":".join(filter(None, (str(library), found.get("PYTHONPATH"))))
    return found


def words(job: Job, task: Task, environ: Mapping[str, str], code: Path) -> tuple[str, ...]:
    """The task's command. Raises PreflightFailed for a program that is not there."""
    found = env.words(job, task)
    program = found[0]
    if "/" in program and not (code / program).is_file():
        raise PreflightFailed(f"{task}: there is no program {program} in {code}")
    if "/" not in program and shutil.which(program, path=environ.get("PATH")) is None:
        remedy = "activate the environment in which the script runs" if program.startswith("python") else ""
        raise PreflightFailed(f"{task}: there is no program {program} on PATH", remedy)
    return env.unit_words(job, task)
