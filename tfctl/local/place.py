"""A job file placed on this machine alone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tfctl.errors import Busy
from tfctl.local import machine
from tfctl.model import placement, stacks
from tfctl.model.host import Host, Inventory, Site, Ssh
from tfctl.model.job import Job, Layout, Slot, Task
from tfctl.model.jobfile import JobFile

#: Where all tasks run. 127.0.0.1: macOS has no other loopback address. The ports lie below those that systems deal out.
HERE = Host("localhost", Ssh("localhost"), address="127.0.0.1", ports=(20000, 29999), output_roots=("/",))
#: Where there are too few GPUs: equal shares, then none.
_LESS: dict[str, Callable[[Slot], Slot]] = {
    "tasks share them": lambda slot: replace(slot, gpus=None if slot.gpus else slot.gpus),
    "all run without": lambda slot: replace(slot, gpus=0),
}


@contextmanager
def place(job: JobFile, file: Path, output: Path, environ: Mapping[str, str], locks: Path) -> Iterator[Job]:
    """The job with every task here, on a port that other local runs leave to it until the end.

    Of the job file `hosts`, `ports`, `stack` and `inventory` speak of other machines and are left out; the stack is the
    active Python. ``output`` stands for the file's. Raises BadFile, Busy.
    """
    stack = machine.python_stack(environ)
    known = {**stacks.load(), **({stack.name: stack} if stack else {})}
    local = _here(job, stack.name if stack else "none", output)
    layout = placement.lay_out(local, Inventory("this machine", (HERE,)), str(file), known)
    with machine.free_ports(len(layout.slots), HERE.ports, locks) as ports:
        if len(ports) < len(layout.slots):
            raise Busy(f"{len(layout.slots)} tasks, and {len(ports)} free ports from {HERE.ports[0]} on")
        held = {port: "" for port in range(HERE.ports[0], HERE.ports[1] + 1) if port not in ports}
        layout, tasks = _assigned(layout, Site("127.0.0.1", held, machine.visible_gpus(environ), alone=True))
        yield Job(layout, 1, secrets.token_hex(4), time.time(), tasks, secrets.token_hex(16))


def _here(job: JobFile, stack: str, output: Path) -> JobFile:
    roles = {name: role.model_copy(update={"hosts": "all", "stack": None}) for name, role in job.roles.items()}
    return job.model_copy(update={"roles": roles, "ports": None, "stack": stack, "output": str(output)})


def _assigned(layout: Layout, site: Site) -> tuple[Layout, tuple[Task, ...]]:
    """With GPUs as the job file has it, where there are enough."""
    with suppress(Busy):
        return layout, placement.assign(layout, {HERE.name: site})
    for how, less in _LESS.items():
        note = f"{len(site.gpus or ())} GPUs are here, fewer than the job wants: {how}"
        changed = replace(layout, slots=tuple(map(less, layout.slots)), notes=(*layout.notes, note))
        with suppress(Busy):
            return changed, placement.assign(changed, {HERE.name: site})
    raise AssertionError("who wants no GPU has one too few")
