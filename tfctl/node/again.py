"""Keep an attempt's unit and environment files, with the variables' values, to start its next attempt from them.

The values are never written to disk. Once a task has ended, its files move to /run/tfctl/ended/JOB, readable by root
only, until the job is stopped or started again, or the host reboots. So any permitted user can restart a failed job
from any machine.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import book, names, plan, unitfile
from .world import World

Texts = Mapping[tuple[str, int], tuple[str, str]]

#: Of so many jobs that have ended the texts are kept: the last ones.
_JOBS = 50


def put_by(world: World, job: str, tasks: list[tuple[str, int]]) -> None:
    """Move the texts of tasks that have ended there. Under the lock of tfctl.node.reserve."""
    folder = world.at(names.ended_dir(job))
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    folder.mkdir(0o700, exist_ok=True)
    for task in tasks:
        for path in _live(world, job, task):
            with contextlib.suppress(FileNotFoundError):
                path.replace(folder / path.name)
    with contextlib.suppress(FileNotFoundError):  # a start has just dropped one
        ended = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in ended[:-_JOBS]:
            shutil.rmtree(old, ignore_errors=True)


def drop(world: World, job: str) -> None:
    """It was stopped, or its next attempt runs."""
    shutil.rmtree(world.at(names.ended_dir(job)), ignore_errors=True)


def tidy(world: World) -> None:
    """The directory goes when no job has anything there. Under the lock of tfctl.node.reserve."""
    with contextlib.suppress(OSError):
        world.at(names.ended_dir("")).rmdir()


def texts(world: World, job: str, attempt: int) -> Texts:
    """Unit and environment file of each of the attempt's tasks here that has both."""
    run = (book.record(world, job, attempt) or {}).get("run")
    folder = world.at(names.ended_dir(job))
    found = {}
    for task in book.tasks(world, job, attempt):
        unit, env = _live(world, job, task)
        for pair in ((unit, env), (folder / unit.name, folder / env.name)):
            with contextlib.suppress(OSError):
                text = pair[0].read_text("utf-8")
                if unitfile.facts(text).get("run") == run:
                    found[task] = (text, pair[1].read_text("utf-8"))
                    break
    return found


def plan_of(known: Texts, code: str, value: Any) -> dict[str, Any]:
    """The PLAN of another attempt with these texts; ``value`` is what the client says of it. Raises Refused."""
    fields = value if isinstance(value, dict) else {}
    job = plan.match(names.JOB, fields.get("job"), "a job's name")
    attempt = plan.number(fields.get("attempt"), "an attempt", 1, 10**6)
    run, output = plan.match(names.RUN, fields.get("run"), "a run"), _output(fields)
    tasks = []
    for (role, index), (unit, env) in known.items():
        facts = unitfile.facts(unit)
        tasks.append(
            {
                "role": role,
                "index": index,
                "ports": [int(port) for port in facts.get("ports", "").split()],
                "gpus": facts.get("gpus", "").split(),
                "program": unitfile.program(unit),
                "unit": unitfile.renewed(
                    unit, job=job, attempt=attempt, run=run, role=role, index=index, output=output
                ),
                "env": _renewed(_renewed(env, "TFCTL_ATTEMPT", str(attempt)), "TFCTL_RUN", run),
            }
        )
    stack = next((plan.stack_of(env) for _, env in known.values()), "none")
    same = {"job": job, "attempt": attempt, "run": run, "record": fields.get("record"), "output": output}
    return {**same, "code": code or None, "stack": stack, "tasks": tasks}


def _output(fields: dict[str, Any]) -> str:
    record = fields.get("record")
    return str(record.get("output")) if isinstance(record, dict) else ""


def _live(world: World, job: str, task: tuple[str, int]) -> tuple[Path, Path]:
    return world.at(names.unit_file(job, *task)), world.at(names.env_file(job, *task))


def _renewed(env: str, name: str, value: str) -> str:
    """A line of a longer value cannot look like this: a quote within one has a backslash before it."""
    return re.sub(rf'(?m)^{name}="[0-9a-f]+"$', f'{name}="{value}"', env)
