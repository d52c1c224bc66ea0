"""Render a task's unit. It contains the lines of the drop-in that restricts all tasks (tfctl.node.unitfile)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfctl.model import env, masking, shell
from tfctl.model.job import Job
from tfctl.model.task import Task
from tfctl.model.text import unit_word
from tfctl.node import names, unitfile

if TYPE_CHECKING:
    from jinja2 import Template


def text(job: Job, task: Task, own: Mapping[str, str], masked: bool = False) -> str:
    """Return the unit file (systemd.service(5)) of one task. ``own``: its environment. ``masked``: to be shown."""
    words = env.unit_words(job, task)
    return template().render(
        job=job,
        task=task,
        slice=names.job_slice(job.name),
        env_file=names.env_file(job.name, task.role, task.index),
        code_dir=names.code_dir(job.name, job.attempt),
        task_dir=names.task_dir(job.name, job.attempt, task.role, task.index),
        note_program=names.NOTE_PROGRAM,
        end_program=names.END_PROGRAM,
        unset=" ".join(env.unset(own)),
        words=" ".join(unit_word(word) for word in (masking.command(words) if masked else words)),
        kill_mode=shell.kill_mode(task.slot.command),
        policy=job.layout.policy,
        rules=job.layout.rules,
        writable=" ".join(f'"{path}"' for path in names.writable(job.name, job.attempt, job.layout.output)),
        ports=names.port_list([task.port]),
        gpus=" ".join(task.gpus or ()),
        restrictions=_restrictions(),
    )


@cache
def _restrictions() -> Mapping[str, str]:
    return {section: "\n".join(lines) for section, lines in unitfile.restrictions().items()}


@cache
def template() -> Template:
    """Return the unit's template, read once. Importing jinja2 is slow, so callers may warm this up while they wait."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # No autoescape: the text is a unit file, not HTML; text.unit_word quotes.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("task.service.j2")
