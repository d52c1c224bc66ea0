"""A job file placed on this machine alone, and what its tasks then find in their environment."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import tfctl
from tfctl.errors import Busy, PreflightFailed
from tfctl.local import machine
from tfctl.model import env, placement
from tfctl.model.host import Host, Inventory, Site, Ssh
from tfctl.model.job import Job, Task
from tfctl.model.jobfile import JobFile

#: Where all tasks run. 127.0.0.1: macOS has no other loopback address. The ports lie below those that systems deal out.
HERE = Host("localhost", Ssh("localhost"), address="127.0.0.1", ports=(20000, 29999), output_roots=("/",))


_RUNTIME = Path(tfctl.__file__).parents[1] / "tfctl_runtime"


@contextmanager
def runtime_library() -> Iterator[Path]:
    """A directory for PYTHONPATH in which there is tfctl_runtime alone: the script's Python need not have it, and
    finds nothing else of the Python that runs tfctl."""
    with tempfile.TemporaryDirectory(prefix="tfctl-run-") as folder:
        Path(folder, _RUNTIME.name).symlink_to(_RUNTIME)
        yield Path(folder)


@contextmanager
def place(job: JobFile, file: Path, output: Path, gpus: tuple[str, ...], locks: Path) -> Iterator[Job]:
    """The job with every task here, on a port that is kept from other local runs meanwhile.

    Of the job file ``hosts``, ``ports``, ``stack`` and ``inventory`` speak of other machines and are left out; where
    it wants more GPUs than are here, its tasks share those that are. ``output`` stands for the file's.
    Raises BadFile, Busy.
    """
    layout = placement.lay_out(_here(job, output, len(gpus)), Inventory("this machine", (HERE,)), str(file))
    with machine.free_ports(len(layout.slots), HERE.ports, locks) as ports:
        if len(ports) < len(layout.slots):
            raise Busy(f"{len(layout.slots)} tasks, and {len(ports)} free ports in {HERE.ports[0]}-{HERE.ports[1]}")
        held = {port: "" for port in range(HERE.ports[0], HERE.ports[1] + 1) if port not in ports}
        site = Site("127.0.0.1", held, gpus, alone=True)
        try:
            tasks = placement.assign(layout, {HERE.name: site})
        except Busy:  # too few GPUs: nobody is told which, and they share them
            tasks = placement.assign(layout, {HERE.name: replace(site, gpus=())})
        yield Job(layout, 1, secrets.token_hex(4), time.time(), tasks)


def environment(job: Job, task: Task, environ: Mapping[str, str], library: Path) -> dict[str, str]:
    """The user's own environment, and in it what a node would set (env.environment), with these differences:

    PATH is the user's, so that the active Python runs; ``library`` goes first on PYTHONPATH. As on a node, proxies and
    what an outer job was told are taken out.
    """
    told = env.environment(job, task)
    if "PATH" not in task.slot.env:
        del told["PATH"]
    if any(name.isdigit() for name in task.gpus or ()):  # the user's own numbers, in the user's own order
        told.pop("CUDA_DEVICE_ORDER", None)
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
    if "/" in program:
        there = (code / program).is_file()
    else:
        there = shutil.which(program, path=environ.get("PATH")) is not None
    if not there:
        where = code if "/" in program else "PATH"
        raise PreflightFailed(
            f"{task}: there is no program {program} in {where}",
            "activate the environment in which the script runs" if program.startswith("python") else "",
        )
    return found


def _here(job: JobFile, output: Path, gpus: int) -> JobFile:
    wanted = sum((role.gpus or 0) * (role.per_host or role.replicas or 1) for role in job.roles.values())
    less = {"gpus": None} if wanted > gpus else {}
    roles = {
        name: role.model_copy(update={"hosts": "all", "stack": None, **(less if role.gpus else {})})
        for name, role in job.roles.items()
    }
    return job.model_copy(update={"roles": roles, "ports": None, "stack": None, "output": str(output)})
