"""The checks of a plan on this host. Each raises Refused with an exit code (DESIGN §4), the cause and a remedy."""

from __future__ import annotations

import os
import posixpath
import shlex
from pathlib import Path

from . import book, code, gpus, names, placed, sockets
from .plan import Plan, Planned
from .talk import Refused
from .world import PROVISION, World, host

_SETTINGS = "/etc/tfctl/node.json"
_ROOTS = ["/srv/tfctl"]


def fit(world: World, plan: Plan) -> None:
    """Check what does not depend on other jobs: user, directories, drop-in, stacks, disk space and output."""
    world.user()
    if not world.at(names.HOME).is_dir():
        raise Refused(8, f"{names.HOME} is missing on {host()}", PROVISION)
    _drop_in(world)
    for stack in dict.fromkeys([plan.stack, *(task.stack for task in plan.tasks)]):
        if stack != "none" and not world.at(names.stack_dir(stack)).is_dir():
            remedy = f"run: tfctl provision --stack {stack}"
            raise Refused(8, f"stack {stack} is not installed on {host()}", remedy, stack=stack)
    code.require_space(world)
    _output_allowed(world, plan.output)


def programs(world: World, plan: Plan) -> None:
    """Check that each task's program exists and is executable. Call it once the code is stored."""
    for task in plan.tasks:
        if not _program(world, plan, task):
            where = "in the code" if "/" in task.program else f"on the PATH of stack {task.stack}"
            raise Refused(
                8,
                f"{task.name}: program {task.program} is not {where} on {host()}, or is not executable",
                "correct the command, or install it there",
            )


def free(world: World, plan: Plan) -> None:
    """Check that the job's name, ports and GPUs are free. Call under the lock of tfctl.node.reserve."""
    for unit in placed.units(world, plan.job):
        if unit.live:
            raise Refused(5, f"{unit} runs on {host()} already", f"stop it first: tfctl stop {plan.job}", retry=False)
    _names_free(world, plan)
    held = placed.held(world)
    if plan.job in held.starting:
        raise Refused(5, f"job {plan.job} is being started on {host()} by somebody else", "try again", retry=True)
    if book.latest(world, plan.job) >= plan.attempt:
        raise Refused(5, f"attempt {plan.attempt} of job {plan.job} is on {host()} already", "start again", retry=False)
    _ports_free([port for task in plan.tasks for port in task.ports], held)
    _gpus_free(world, [gpu for task in plan.tasks for gpu in task.gpus], held)


def still_free(world: World, ended: list[placed.Placed]) -> None:
    """Check that no one else has taken the ports and GPUs of these ended units. Call under tfctl.node.reserve.lock."""
    held = placed.held(world)
    _ports_free([port for unit in ended for port in unit.ports], held)
    _gpus_free(world, [gpu for unit in ended for gpu in unit.gpus], held)


def _names_free(world: World, plan: Plan) -> None:
    """Check for foreign units with our names: systemd would start and stop those in place of ours."""
    for unit, shown in world.show(plan.units).items():
        place = shown.get("FragmentPath", "")
        if shown.get("LoadState") != "not-found" and place != f"{names.UNITS}/{unit}":
            do = f"systemctl stop {unit}, remove its file, systemctl daemon-reload"
            raise Refused(5, f"{host()} has a unit {unit} that is not tfctl's: {place or 'no file'}", do, retry=False)


def _drop_in(world: World) -> None:
    shipped = Path(__file__).with_name("10-tfctl.conf").read_bytes()
    try:
        same = world.at(names.DROP_IN).read_bytes() == shipped
    except OSError:
        same = False
    if not same:
        raise Refused(8, f"{names.DROP_IN} on {host()} is not the one of this version", PROVISION)


def _output_allowed(world: World, output: str) -> None:
    """Check that the output is in a directory that the inventory allows, also with links resolved."""
    settings = book.read_json(world.at(_SETTINGS)) or {}
    roots = [posixpath.normpath(str(root)) for root in settings.get("output_roots") or _ROOTS]
    real = os.path.realpath(world.at(output))
    for root in roots:
        inside = posixpath.commonpath([root, output]) == root
        base = os.path.realpath(world.at(root))
        if inside and posixpath.commonpath([base, real]) == base:
            return
    raise Refused(
        8, f"output {output} is outside the directories that {host()} allows: {', '.join(roots)}",
        "choose a directory inside one of them, or set tfctl_output_roots in the inventory and " + PROVISION,
    )  # fmt: skip


def _program(world: World, plan: Plan, task: Planned) -> bool:
    if task.program.startswith("/"):
        return _executable(world.at(task.program))
    if "/" in task.program:
        return bool(plan.code) and _executable(world.at(names.stored_code(plan.code)) / task.program)
    folders = _variable(task.env, "PATH") or names.PATH
    return any(_executable(world.at(f"{folder}/{task.program}")) for folder in folders.split(":") if folder[:1] == "/")


def _variable(env: str, name: str) -> str:
    """Return a variable's value from the text of an environment file that tfctl wrote, or "" if it has none."""
    for line in env.split("\n"):
        if line.startswith(f"{name}="):
            try:
                return "".join(shlex.split(line[len(name) + 1 :]))
            except ValueError:
                return ""
    return ""


def _executable(path: Path) -> bool:
    try:
        return path.is_file() and bool(path.stat().st_mode & 0o111)
    except OSError:
        return False


def _ports_free(wanted: list[int], held: placed.Held) -> None:
    for port in wanted:
        if wanted.count(port) > 1:
            raise Refused(2, f"the plan gives port {port} of {host()} twice")
        if port in held.ports:
            raise _taken(f"port {port}", held.ports[port], "give other ports:", retry=True)
        if not sockets.is_free(port):
            raise _taken(f"port {port}", sockets.holder(port), "end it, or give other ports:", retry=False)


def _gpus_free(world: World, wanted: list[str], held: placed.Held) -> None:
    seen = gpus.look(world) if wanted else gpus.Seen([])
    if seen.trouble:
        raise Refused(8, seen.trouble, seen.remedy)
    here = {gpu["uuid"]: gpu["holder"] for gpu in seen.devices}
    for gpu in wanted:
        if wanted.count(gpu) > 1:
            raise Refused(2, f"the plan gives GPU {gpu} of {host()} twice")
        if gpu in held.gpus:
            raise _taken(f"GPU {gpu}", held.gpus[gpu], "wait for it:", retry=True)
        if gpu not in here:
            raise Refused(8, f"{host()} has no GPU {gpu}", "see what it has: nvidia-smi -L")
        if here[gpu]:
            raise _taken(f"GPU {gpu}", here[gpu], "end it:", retry=False)


def _taken(what: str, by: str, do: str, retry: bool) -> Refused:
    """Build the refusal. ``retry``: it was taken after this start's hello, so a new hello may choose another."""
    return Refused(5, f"{what} of {host()} is held by {by}", f"{do} tfctl status shows what runs", retry)
