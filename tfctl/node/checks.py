"""Check a plan, and whether this host can carry it out.

Each check raises RequestRefused with the cause and a remedy.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import code, disks, fields, gpus, guards, jobstore, names, reservations, sockets, unitfile
from .exits import Exit
from .restart_files import stack_of
from .session import RequestRefused
from .system import PROVISION, System, host
from .units import InstalledUnit, installed_units, live_units
from .wire import Peer, Plan, PlannedTask, Record

_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


class StillGuarded(RequestRefused):
    """The guard of an earlier attempt runs: its job goes on on other hosts, or has only just ended."""


def plan(sent: Plan, job: str, digest: str | None) -> None:
    """Check a plan by itself. It must be for the job and the code of the start's request."""
    fields.job_name(sent.job)
    fields.attempt_number(sent.attempt)
    fields.match(names.RUN, sent.run, "a run")
    if sent.output:
        fields.match(names.OUTPUT, sent.output, "an output directory tfctl can use")
    fields.match(names.STACK, sent.stack, "a stack's name")
    for task in sent.tasks:
        _planned(task)
    if (sent.job, sent.code) != (job, digest):
        raise RequestRefused(Exit.USAGE, "the plan is not for the job and the code that the request named")
    if sent.output and posixpath.normpath(sent.output) != sent.output:
        remedy = "write it without . and .. and double slashes"
        raise RequestRefused(Exit.BAD_FILE, f"output {sent.output} is not a plain path", remedy)
    if len({task.name for task in sent.tasks}) != len(sent.tasks):
        raise RequestRefused(Exit.USAGE, "the plan has a task twice")
    _record(sent)
    for task in sent.tasks:
        _unit(sent, task)
    _guard(sent)
    known = {Peer(task.host, task.address, task.port) for task in sent.record.tasks}
    if not known.issuperset(sent.reach):
        raise RequestRefused(Exit.USAGE, "the plan names a peer that its record lacks")


def _record(sent: Plan) -> None:
    """Check the record, which other users' commands read: they connect to its hosts, and copy its output."""
    record = sent.record
    if (record.job, record.attempt, record.run) != (sent.job, sent.attempt, sent.run):
        raise RequestRefused(Exit.USAGE, "the plan's record is of another attempt")
    if (record.output, record.code or None) != (sent.output, sent.code):
        raise RequestRefused(Exit.USAGE, "the plan's record has another output or other code")
    if not set(fields.task_names(task.name for task in record.tasks)).issuperset(task.name for task in sent.tasks):
        raise RequestRefused(Exit.USAGE, "the plan has a task that its record lacks")
    fields.match(names.STACK, record.stack, "a stack's name")
    for task in record.tasks:
        fields.match(names.HOST, task.host, "a host's name")
        fields.match(names.ADDRESS, task.address, "an address")
        fields.number(task.port, "a port", 1, 65535)
        for gpu in task.gpus:
            fields.match(_GPU, gpu, "a GPU")
        if task.unit != names.unit(sent.job, *task.name):
            raise RequestRefused(Exit.USAGE, f"{task.unit!r:.80} is not the unit of {names.task(*task.name)}")


def _guard(sent: Plan) -> None:
    """Check what the plan says about the guard."""
    recorded, planned = sent.record.guard, sent.guard
    if planned is not None:
        fields.match(names.DIGEST, planned.key, "a key")
        if recorded is None or (planned.notify and any("\0" in word for word in planned.notify.command)):
            raise RequestRefused(Exit.USAGE, "the plan has a guard that its record lacks")
    if recorded is not None:
        if recorded.port:
            fields.number(recorded.port, "a port for the guard", 1024, 65535)
        fields.match(names.RUN, recorded.origin, "a run")
        fields.match(names.ADDRESS, recorded.address, "an address")
        if recorded.head not in {task.host for task in sent.record.tasks}:
            raise RequestRefused(Exit.USAGE, "the host of the deciding guard has no task")


def ports(sent: Plan) -> list[int]:
    """Return the ports that the plan takes on this host: those of its tasks and, on the head, that of the guard."""
    tasks = [port for task in sent.tasks for port in task.ports]
    guard, ours = sent.record.guard, {task.name for task in sent.tasks}
    here = {task.host for task in sent.record.tasks if task.name in ours}
    own = [guard.port] if guard and sent.guard and guard.port and guard.head in here else []
    return [*tasks, *own]


def fit(system: System, plan: Plan) -> None:
    """Check what does not depend on other jobs: user, directories, drop-in, stacks, disk space and output."""
    system.user()
    if plan.record.guard:
        guards.account(system)
    if not system.at(names.HOME).is_dir():
        raise RequestRefused(Exit.PREFLIGHT, f"{names.HOME} is missing on {host()}", PROVISION)
    drop_in(system)
    for stack in dict.fromkeys([plan.stack, *(stack_of(task.env) for task in plan.tasks)]):
        if stack != "none" and not system.at(names.stack_dir(stack)).is_dir():
            remedy = f"run: tfctl provision INVENTORY --stack {stack}"
            raise RequestRefused(Exit.PREFLIGHT, f"stack {stack} is not installed on {host()}", remedy, stack=stack)
    for path in dict.fromkeys(_variable(task.env, "TFCTL_REQUIREMENTS") for task in plan.tasks):
        if path:
            _packages(system, path)
    code.require_space(system)
    if plan.output:
        _output_allowed(system, plan.output)


def programs(system: System, plan: Plan) -> None:
    """Check that each task's program exists and is executable. Call it once the code is stored."""
    for task in plan.tasks:
        if not _program(system, plan, task):
            where = "in the code" if "/" in task.program else f"on the PATH of stack {stack_of(task.env)}"
            raise RequestRefused(
                Exit.PREFLIGHT,
                f"{names.task(*task.name)}: program {task.program} is not {where} on {host()}, or is not executable",
                "correct the command, or install it there",
            )


def free(system: System, plan: Plan) -> None:
    """Check that the job's name, ports, GPUs and output are free. Call under tfctl.node.reservations.lock.

    Raises StillGuarded if only the guard of the job keeps it from being started.
    """
    for unit in installed_units(system, plan.job):
        if unit.live:
            remedy = f"stop it first: tfctl stop {plan.job}"
            raise RequestRefused(Exit.BUSY, f"{unit} runs on {host()} already", remedy, retry=False)
    _names_free(system, plan)
    units = live_units(system)
    held = reservations.held(system, units)
    if plan.job in held.starting:
        what = f"another start of job {plan.job} is in progress on {host()}"
        raise RequestRefused(Exit.BUSY, what, "try again", retry=True)
    if jobstore.highest(system, plan.job) >= plan.attempt:
        what = f"attempt {plan.attempt} of job {plan.job} is on {host()} already"
        raise RequestRefused(Exit.BUSY, what, "start again", retry=False)
    _guard_gone(system, plan)
    _ports_free(ports(plan), held)
    _gpus_free(system, [gpu for task in plan.tasks for gpu in task.gpus], held)
    _output_apart(system, plan, reservations.outputs(system, units))


def still_free(system: System, ended: Sequence[InstalledUnit]) -> None:
    """Check that no one else has taken the ports and GPUs of these ended units.

    Call under tfctl.node.reservations.lock.
    """
    held = reservations.held(system)
    _ports_free([port for unit in ended for port in unit.ports], held)
    _gpus_free(system, [gpu for unit in ended for gpu in unit.gpus], held)


def _planned(task: PlannedTask) -> None:
    fields.task_name(task.name)
    for port in task.ports:
        fields.number(port, "a port", 1, 65535)
    for gpu in task.gpus:
        fields.match(_GPU, gpu, "a GPU")
    if any("\0" in text for text in (task.program, task.unit, task.env)):
        raise RequestRefused(Exit.USAGE, "a text of a task has a null character")


def _unit(plan: Plan, task: PlannedTask) -> None:
    try:
        unitfile.check(
            task.unit, job=plan.job, attempt=plan.attempt, run=plan.run, role=task.role, index=task.index,
            output=plan.output, ports=task.ports, gpus=task.gpus,
        )  # fmt: skip
    except unitfile.NotAllowed as error:
        what = f"the unit of {names.task(*task.name)} was rejected by this host: {error}"
        raise RequestRefused(Exit.PREFLIGHT, what, PROVISION) from None


def _guard_gone(system: System, plan: Plan) -> None:
    """Check that the start does not remove a guard that its job needs: the tasks of this host may have ended while
    others go on elsewhere."""
    if guards.replaced(plan) and guards.is_needed(system, plan.job):
        what, remedy = f"{names.guard(plan.job)} still runs on {host()}", f"stop it first: tfctl stop {plan.job}"
        raise StillGuarded(Exit.BUSY, what, remedy, retry=False)


def _names_free(system: System, plan: Plan) -> None:
    """Check for foreign units with our names: systemd would start and stop those in place of ours."""
    units = [names.unit(plan.job, *task.name) for task in plan.tasks]
    for unit, properties in system.show(units).items():
        place = properties.get("FragmentPath", "")
        if properties.get("LoadState") != "not-found" and place != f"{names.UNITS}/{unit}":
            remedy = f"systemctl stop {unit}, remove its file, systemctl daemon-reload"
            what = f"{host()} has a unit {unit} that is not tfctl's: {place or 'no file'}"
            raise RequestRefused(Exit.BUSY, what, remedy, retry=False)


def drop_in(system: System) -> None:
    """Check the drop-in that restricts all units of tfctl: it is that of this version or, when the guard of a running
    job starts its next attempt after an upgrade, that of the version that is installed now."""
    name = Path(names.DROP_IN).name
    shipped = (Path(__file__).with_name(name), system.at(f"{names.LIB}/current/tfctl_node/{name}"))
    found = _content(system.at(names.DROP_IN))
    if found is None or found not in [_content(path) for path in shipped]:
        raise RequestRefused(Exit.PREFLIGHT, f"{names.DROP_IN} on {host()} is not the one of this version", PROVISION)


def installed(system: System, record: Record, unit: InstalledUnit) -> None:
    """Check the unit file of a task that is about to be started again: it is one that this version renders."""
    text = (_content(system.at(names.unit_file(unit.job, *unit.task))) or b"").decode("utf-8", "replace")
    try:
        unitfile.check(
            unitfile.as_rendered(text), job=unit.job, attempt=record.attempt, run=record.run, role=unit.task[0],
            index=unit.task[1], output=record.output, ports=unit.ports, gpus=unit.gpus,
        )  # fmt: skip
    except unitfile.NotAllowed as error:
        what = f"the unit of {names.task(*unit.task)} on {host()} is not one of this version: {error}"
        raise RequestRefused(Exit.PREFLIGHT, what, f"restart the whole job: tfctl restart {unit.job}") from None


def _content(path: Path) -> bytes | None:
    """Return the bytes of a file, or None if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def _output_allowed(system: System, output: str) -> None:
    """Check that the output is in a directory that the inventory allows and that units can see, also with links
    resolved."""
    roots = disks.output_roots(system)
    real = os.path.realpath(system.at(output))
    for hidden in names.HIDDEN:
        base = os.path.realpath(system.at(hidden))
        if posixpath.commonpath([hidden, output]) == hidden or posixpath.commonpath([base, real]) == base:
            what = f"output {output} is in {hidden} of {host()}, which jobs cannot see (systemd's ProtectHome=)"
            raise RequestRefused(Exit.PREFLIGHT, what, f"choose a directory elsewhere, such as {roots[0]}")
    for root in roots:
        inside = posixpath.commonpath([root, output]) == root
        base = os.path.realpath(system.at(root))
        if inside and posixpath.commonpath([base, real]) == base:
            return
    raise RequestRefused(
        Exit.PREFLIGHT, f"output {output} is outside the directories that {host()} allows: {', '.join(roots)}",
        "choose a directory inside one of them, or set tfctl_output_roots in the inventory and " + PROVISION,
    )  # fmt: skip


def _output_apart(system: System, plan: Plan, outputs: Mapping[str, str]) -> None:
    """Check that the output is not below that of another job, or above it.

    The tasks of the outer job could replace the inner directory by a link to a place to which they cannot write.
    systemd follows it (ReadWritePaths=) whenever it starts a unit of the inner job. ``outputs``: by job.
    """
    for job, other in outputs.items() if plan.output else ():
        if job != plan.job and (inner := _inner(system, plan.output, other)):
            below = "is below" if inner == plan.output else "contains"
            what = f"output {plan.output} {below} {other}, the output of job {job}, which runs on {host()}"
            remedy = f"choose a directory beside it, or stop that job first: tfctl stop {job}"
            raise RequestRefused(Exit.BUSY, what, remedy, retry=False)


def _inner(system: System, one: str, other: str) -> str:
    """Return which of two different directories is below the other one, as they are written or with links resolved, or
    an empty string."""
    resolved = (os.path.realpath(system.at(one)), os.path.realpath(system.at(other)))
    for here, there in ((one, other), resolved):
        common = posixpath.commonpath([here, there])
        if here != there and common in (here, there):
            return other if common == here else one
    return ""


def _packages(system: System, path: str) -> None:
    """Check that the packages of a requirements file are installed."""
    fields.match(names.REQUIREMENTS_DIR, path, "a directory of packages")
    if not (system.at(path) / names.REQUIREMENTS_MARKER).is_file():
        remedy = "run: tfctl provision INVENTORY --requirements FILE"
        raise RequestRefused(Exit.PREFLIGHT, f"the packages of the job in {path} are not installed on {host()}", remedy)


def _program(system: System, plan: Plan, task: PlannedTask) -> bool:
    if task.program.startswith("/"):
        return _executable(system.at(task.program))
    if "/" in task.program:
        return plan.code is not None and _executable(system.at(names.stored_code(plan.code)) / task.program)
    folders = _variable(task.env, "PATH") or names.PATH
    return any(_executable(system.at(f"{folder}/{task.program}")) for folder in folders.split(":") if folder[:1] == "/")


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


def _ports_free(wanted: list[int], held: reservations.Held) -> None:
    for port in wanted:
        if wanted.count(port) > 1:
            raise RequestRefused(Exit.USAGE, f"the plan gives port {port} of {host()} twice")
        if port in held.ports:
            raise _taken(f"port {port}", held.ports[port], "try again;", retry=True)
        if not sockets.is_free(port):
            raise _taken(
                f"port {port}",
                sockets.holder(port),
                "stop that process, or set other ports in the job file;",
                retry=False,
            )


def _gpus_free(system: System, wanted: list[str], held: reservations.Held) -> None:
    seen = gpus.look(system) if wanted else gpus.Seen()
    if seen.trouble:
        raise RequestRefused.of(seen.trouble)
    here = {gpu.uuid: gpu.holder for gpu in seen.devices}
    for gpu in wanted:
        if wanted.count(gpu) > 1:
            raise RequestRefused(Exit.USAGE, f"the plan gives GPU {gpu} of {host()} twice")
        if gpu in held.gpus:
            raise _taken(
                f"GPU {gpu}", held.gpus[gpu], "try again, or wait for it with tfctl start JOBFILE --queue;", retry=True
            )
        if gpu not in here:
            raise RequestRefused(Exit.PREFLIGHT, f"{host()} has no GPU {gpu}", "see what it has: nvidia-smi -L")
        if here[gpu]:
            raise _taken(f"GPU {gpu}", here[gpu], "stop that process;", retry=False)


def _taken(what: str, by: str, remedy: str, retry: bool) -> RequestRefused:
    """Build the refusal. ``retry``: it was taken after this start's hello, so a new hello may choose another."""
    message = f"{what} of {host()} is held by {by}"
    return RequestRefused(Exit.BUSY, message, f"{remedy} tfctl status shows what runs", retry)
