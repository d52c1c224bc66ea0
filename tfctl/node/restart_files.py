"""Keep an attempt's unit and environment files, with the variables' values, to start its next attempt from them.

The values are never written to disk. Once tfctl has stopped a task, or starts its job again, its files move to
/run/tfctl/ended/JOB, readable by root only, until the job is stopped or started again, or the host reboots. So any
permitted user can restart a failed job from any machine.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import jobstore, names, unitfile
from .system import System
from .wire import Plan, PlannedTask, Record, TaskName

#: Unit and environment file of each task, as texts.
RestartFiles = Mapping[TaskName, "tuple[str, str]"]

#: Keep the files of at most this many ended jobs.
_JOBS = 50
_ON_PATH = re.compile(rf'^PATH="{names.STACKS}/({names.STACK.pattern})/bin', re.MULTILINE)


def save(system: System, job: str, tasks: Iterable[TaskName]) -> None:
    """Move the files of tasks that have ended there. Call under tfctl.node.reservations.lock."""
    folder = make_folder(system, job)
    for task in tasks:
        for path in _installed(system, job, task):
            with contextlib.suppress(FileNotFoundError):
                path.replace(folder / path.name)
    with contextlib.suppress(FileNotFoundError):  # another job's directory may be deleted just now
        ended = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in ended[:-_JOBS]:
            _remove(old)


def make_folder(system: System, job: str) -> Path:
    """Make the directory of the job's restart files and return it."""
    folder = system.at(names.ended_dir(job))
    while not folder.is_dir():
        folder.parent.mkdir(0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # `delete` has just removed the empty parent
            folder.mkdir(0o700, exist_ok=True)
    return folder


def delete(system: System, job: str) -> None:
    """Delete the job's restart files, and the directory of all jobs if none is left."""
    folder = system.at(names.ended_dir(job))
    _remove(folder)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()


def load(system: System, job: str, attempt: int) -> RestartFiles:
    """Return the files of each of the attempt's tasks here that has both, whether it has ended or not."""
    record = jobstore.record(system, job, attempt)
    folder = system.at(names.ended_dir(job))
    found = {}
    for task in jobstore.tasks(system, job, attempt):
        unit, env = _installed(system, job, task)
        for pair in ((unit, env), (folder / unit.name, folder / env.name)):
            with contextlib.suppress(OSError):
                text = pair[0].read_text("utf-8")
                if record and unitfile.facts(text).run == record.run:
                    found[task] = (text, pair[1].read_text("utf-8"))
                    break
    return found


def plan(files: RestartFiles, record: Record, code: str | None) -> Plan:
    """Return the plan of the attempt that ``record`` describes, made from another attempt's files."""
    tasks = []
    for (role, index), (unit, env) in files.items():
        facts = unitfile.facts(unit)
        renewed = unitfile.renewed(
            unit, job=record.job, attempt=record.attempt, run=record.run, role=role, index=index, output=record.output
        )
        env = _renewed(_renewed(env, "TFCTL_ATTEMPT", str(record.attempt)), "TFCTL_RUN", record.run)
        tasks.append(PlannedTask(role, index, facts.ports, facts.gpus, unitfile.program(unit), renewed, env))
    stack = stack_of(tasks[0].env) if tasks else "none"
    return Plan(record.job, record.attempt, record.run, record, code, record.output, stack, tuple(tasks))


def stack_of(env: str) -> str:
    """Return the stack that comes first on the PATH of an environment file, or ``none``."""
    found = _ON_PATH.search(env)
    return found.group(1) if found else "none"


def _remove(folder: Path) -> None:
    import shutil  # slow to import, for it needs bz2 and lzma

    shutil.rmtree(folder, ignore_errors=True)


def _installed(system: System, job: str, task: TaskName) -> tuple[Path, Path]:
    return system.at(names.unit_file(job, *task)), system.at(names.env_file(job, *task))


def _renewed(env: str, name: str, value: str) -> str:
    """Replace a variable's value. Lines of a longer value cannot match: a quote in them has a backslash before it."""
    return re.sub(rf'(?m)^{name}="[0-9a-f]+"$', f'{name}="{value}"', env)
