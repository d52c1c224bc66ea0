"""Create on disk everything that a plan needs. Nothing runs yet."""

from __future__ import annotations

import contextlib
import json
import os

from . import book, checks, code, ending, names, placed, reserve
from .asuser import as_user
from .plan import Plan, Planned
from .reserve import Reservation
from .talk import Refused
from .world import PROVISION, World, host


def build(world: World, plan: Plan, incoming: code.Incoming | None) -> tuple[Reservation, int]:
    """Check, reserve and write, or leave nothing; the descriptor holds the reservation. Raises Refused, OSError."""
    made = Reservation(
        plan.job, plan.attempt, plan.run, tuple(task.task for task in plan.tasks),
        tuple(port for task in plan.tasks for port in task.ports),
        tuple(gpu for task in plan.tasks for gpu in task.gpus),
    )  # fmt: skip
    try:
        checks.fit(world, plan)
        if incoming and incoming.store():
            made = made._replace(stored=plan.code)
        checks.programs(world, plan)
        made = made._replace(made=tuple(_output(world, plan)))
        with reserve.lock(world):
            reserve.sweep(world)
            checks.free(world, plan)
            return made, _reserve(world, plan, made)
    except BaseException:
        reserve.forgo(world, made)
        raise


def _reserve(world: World, plan: Plan, made: Reservation) -> int:
    descriptor = reserve.take(world, made)
    try:
        _retire(world, plan.job)
        _write(world, plan)
        _loaded(world, plan)
    except BaseException:
        reserve.undo(world, made)
        os.close(descriptor)
        raise
    return descriptor


def _output(world: World, plan: Plan) -> list[str]:
    """The output directory made as the jobs' user, for it and its group; the directories that were not there."""
    path = world.at(plan.output)

    def make() -> list[str]:
        made = []
        for one in [one for one in (path, *path.parents) if not one.exists()][::-1]:
            with contextlib.suppress(FileExistsError):  # another host that shares it was faster
                one.mkdir()
                one.chmod(0o2770)
                made.append(str(one))
        if not os.access(path, os.W_OK | os.X_OK) or not path.is_dir():
            raise Refused(8, f"user {world.account} cannot write to {plan.output} on {host()}", "chown it to that user")
        return made

    return list(as_user(world, make))


def _retire(world: World, job: str) -> None:
    """The units of the attempt before, which have ended, go."""
    ending.forget(world, job, [unit.task for unit in placed.units(world, job)], keep=True)


def _write(world: World, plan: Plan) -> None:
    """Directories, code, environment files, units, the record."""
    user = world.user()
    attempt = world.at(names.attempt_dir(plan.job, plan.attempt))
    world.at(f"{names.RUN_DIR}/env").mkdir(0o700, parents=True, exist_ok=True)
    world.at(names.UNITS).mkdir(0o755, parents=True, exist_ok=True)
    attempt.mkdir(0o755, parents=True)
    (attempt / "stopped").mkdir(0o755)
    code.copy(world, plan.code, world.at(names.code_dir(plan.job, plan.attempt)))
    as_rendered = world.sees_execution()
    for task in plan.tasks:
        unit = task.unit if as_rendered else task.unit.replace("\nType=exec\n", "\nType=simple\n")
        _write_task(world, plan, task._replace(unit=unit), user.pw_uid, user.pw_gid)
    record = json.dumps(plan.record, separators=(",", ":")).encode()
    book.write(world.at(names.record_file(plan.job, plan.attempt)), record)


def _write_task(world: World, plan: Plan, task: Planned, uid: int, gid: int) -> None:
    directory = world.at(names.task_dir(plan.job, plan.attempt, *task.task))
    directory.mkdir(0o750)
    os.chown(directory, uid, gid)
    book.write(world.at(names.env_file(plan.job, *task.task)), task.env.encode(), 0o600)
    book.write(world.at(names.unit_file(plan.job, *task.task)), task.unit.encode())


def _loaded(world: World, plan: Plan) -> None:
    """That systemd has the units, each under the drop-in. Raises Refused."""
    for unit, shown in world.settle(plan.units, "loaded").items():
        if shown.get("LoadState") != "loaded":
            raise Refused(1, f"systemd of {host()} does not take {unit}: it is {shown.get('LoadState')}")
        if names.DROP_IN not in shown.get("DropInPaths", ""):
            raise Refused(8, f"systemd of {host()} has not read {names.DROP_IN}", PROVISION)
