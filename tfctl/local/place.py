"""Place a job on this machine alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from tfctl.errors import Busy
from tfctl.local import machine
from tfctl.local.runtimes import Runtimes
from tfctl.model.assign import assign
from tfctl.model.host import Host, Inventory, Site, Ssh
from tfctl.model.job import Job, Layout
from tfctl.model.jobfile import JobFile, Limits
from tfctl.model.layout import lay_out
from tfctl.model.task import Slot, Task
from tfctl.model.values import NO_OUTPUT
from tfctl.model.variables import ExternalVariables
from tfctl.wording import counted

#: Where all tasks run. macOS has no loopback address but 127.0.0.1. The ports lie below the ephemeral range.
HERE = Host("localhost", Ssh("localhost"), address="127.0.0.1", ports=(20000, 29999), output_roots=("/",))
#: What to try if there are too few GPUs: equal shares, then none.
_FALLBACKS: dict[str, Callable[[Slot], Slot]] = {
    "the tasks share them": lambda slot: replace(slot, gpus=None if slot.gpus else slot.gpus),
    "all tasks run without GPUs": lambda slot: replace(slot, gpus=0),
}


def lay_out_here(
    job: JobFile,
    file: Path,
    output: Path | None,
    environ: Mapping[str, str],
    runtimes: Runtimes,
    given: Mapping[str, str] = MappingProxyType({}),
) -> Layout:
    """Return the layout of the job with every task on this machine.

    The job file's `hosts`, `ports`, `limits` and `inventory` concern other machines and are ignored. ``output``
    replaces the file's; None for a job that needs none. ``given``: the variables of `-e`. Raise BadFile.
    """
    known = {runtime.name: runtime.stack for runtime in runtimes.values() if runtime.stack}
    local = _here(job, runtimes, output)
    layout = lay_out(local, Inventory("this machine", (HERE,)), str(file), known, ExternalVariables(environ, given))
    if any(role.limits != Limits() for role in job.roles.values()):
        layout = replace(layout, notes=(*layout.notes, "`limits` apply only on hosts: the tasks run here without them"))
    return layout


@contextmanager
def place(layout: Layout, environ: Mapping[str, str], locks: Path, runtimes: Runtimes) -> Iterator[Job]:
    """Yield the job with each task on a port that is reserved against other local runs. Raise Busy."""
    with machine.free_ports(len(layout.slots), HERE.ports, locks) as ports:
        if len(ports) < len(layout.slots):
            least, last = HERE.ports
            few = f"{counted(len(layout.slots), 'task')}, but only {counted(len(ports), 'free port')} in {least}-{last}"
            raise Busy(few, "end other runs, or reduce the number of tasks in the job file")
        held = {port: "" for port in range(HERE.ports[0], HERE.ports[1] + 1) if port not in ports}
        layout, tasks = _assigned(layout, Site("127.0.0.1", held, machine.visible_gpus(environ), alone=True))
        packages = {(HERE.name, each.name): each.packages for each in runtimes.values() if each.packages}
        yield Job(layout, 1, secrets.token_hex(4), time.time(), tasks, secrets.token_hex(16), requirements=packages)


def _here(job: JobFile, runtimes: Runtimes, output: Path | None) -> JobFile:
    roles = {
        name: role.model_copy(update={"hosts": "all", "stack": runtimes[name].name, "limits": Limits()})
        for name, role in job.roles.items()
    }
    return job.model_copy(
        update={"roles": roles, "ports": None, "output": str(output or NO_OUTPUT), "requirements": None}
    )


def _assigned(layout: Layout, site: Site) -> tuple[Layout, tuple[Task, ...]]:
    """Assign GPUs as the job file asks; if there are too few, try shares, then none, and add a note."""
    with suppress(Busy):
        return layout, assign(layout, {HERE.name: site})
    for how, reduce in _FALLBACKS.items():
        note = f"this machine has {counted(len(site.gpus or ()), 'GPU')}, fewer than the job requests: {how}"
        changed = replace(layout, slots=tuple(map(reduce, layout.slots)), notes=(*layout.notes, note))
        with suppress(Busy):
            return changed, assign(changed, {HERE.name: site})
    raise AssertionError("a job without GPUs cannot lack GPUs")
