"""Which inventory, which job and which task a command line means."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tfctl.cli.common import say
from tfctl.errors import BadFile, Exit, TfctlError, UsageError, first_of, of_hosts

if TYPE_CHECKING:
    from tfctl.jobs.state import JobState, TaskState
    from tfctl.model.host import Host, Inventory
    from tfctl.model.job import Layout
    from tfctl.model.jobfile import JobFile
    from tfctl.remote.fleet import Fleet

#: A task such as worker/3. What follows the slash is checked later.
_TASK = re.compile(r"[a-z][a-z0-9_]*/[^/.]*")


@dataclass(frozen=True)
class OpenJob:
    """A job as its hosts report it. ``fleet`` holds exactly its hosts. ``errors``: of hosts that did not answer, and of
    hosts of the job that the inventory lacks. ``inventory``: its path. ``task``: the role, and the index or None, that
    the command line names; None for the whole job. ``named``: it names the job. ``others``: the other hosts of the
    inventory that have answered."""

    fleet: Fleet
    state: JobState
    errors: list[TfctlError]
    inventory: str
    task: tuple[str, int | None] | None = None
    named: bool = True
    others: tuple[Host, ...] = ()

    def host(self, task: TaskState) -> Host:
        """Return the host of a task. Raise NotFound if the inventory does not have it."""
        from tfctl.jobs.state import not_in_inventory

        for host in self.fleet.hosts:
            if host.name == task.host:
                return host
        raise not_in_inventory(self.state, task.host)


@contextmanager
def open_job(
    argument: str | None,
    option: str | None,
    inventory: Sequence[Path] | None,
    changes: bool = False,
    lines: bool = False,
    keep: bool = True,
) -> Iterator[OpenJob]:
    """Find the job that a command means, ask its hosts about it, and keep the connections for the block.

    A job that was not named is named on stderr. ``changes``: the command alters the job; ``lines``: it shows the ages
    of last lines (jobs.show.one); without ``keep``, it asks the hosts nothing more. Raise UsageError (2), BadFile (3),
    NotFound (7), or the errors of the hosts if none answers.
    """
    from tfctl.jobs import show

    chosen, name = find_job(argument, option, inventory)
    # To find out which job is meant, the hosts may have to be asked twice.
    with _connected(chosen, keep or name is None) as fleet:
        state, errors = show.one(fleet, name, changes, lines)
        yield _opened(OpenJob(fleet, state, errors, chosen.source, named=name is not None))


@contextmanager
def open_task(
    words: Sequence[str], option: str | None, inventory: Sequence[Path] | None, changes: bool = False
) -> Iterator[OpenJob]:
    """Do as `open_job` for a command with the words ``[JOB] [ROLE [INDEX]]``.

    A single word is a role if the job that is meant without a name has that role, else a job. Raise UsageError for
    words of another form.
    """
    from tfctl.jobs import show

    job, task = split_words(words, option is not None)
    if job is None or task is not None or not _may_be_role(job):
        with open_job(job, option, inventory, changes) as opened:
            yield replace(opened, task=task)
        return
    chosen = find_inventory(inventory)
    with _connected(chosen) as fleet:
        state, errors = show.named(fleet, job, changes)
        is_role = any(each.role == job for each in state.tasks)
        role = (job, None) if is_role else None
        yield _opened(OpenJob(fleet, state, errors, chosen.source, role, named=not is_role))


def _opened(opened: OpenJob) -> OpenJob:
    """Report what the user should know about a job and its hosts, and leave only these in its fleet."""
    from tfctl.jobs.state import absent

    say_clocks(opened.fleet)
    if not opened.named:
        say_job(opened.state.job)
    missing = absent(opened.state, opened.fleet.hosts)
    not_others = {*opened.state.hosts, *(host for error in opened.errors for host in error.hosts)}
    others = tuple(host for host in opened.fleet.hosts if host.name not in not_others)
    opened.fleet.narrow(opened.state.hosts)
    return replace(opened, errors=[*opened.errors, *missing], others=others)


def for_missing_hosts(state: JobState, errors: Sequence[TfctlError]) -> Exit:
    """Return the exit code of a command that has shown a job: OK, unless hosts of the job are missing.

    ``errors``: those of all hosts, also of hosts that the job does not use.
    """
    silent = {task.host for task in state.tasks if task.state == "unknown"}
    codes = [error.exit for error in of_hosts(errors, silent)]
    return first_of([*codes, Exit.UNREACHABLE] if silent else [])


def require_meant(state: JobState, verb: str) -> None:
    """Ask whether this job is meant, which the command line does not name, unless the user started it from here.

    Raise UsageError without a terminal, and if the answer is no.
    """
    from tfctl.jobs import start_history

    guard = state.record.guard
    if start_history.is_own([state.record.run, *([guard.origin] if guard else [])]):
        return
    remedy = f"name it: tfctl {verb} {state.job}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{state.job} was not started from this directory", remedy)
    if not typer.confirm(f"{state.job} was not started from this directory. {verb.capitalize()} it?", err=True):
        raise UsageError(f"{state.job} was left as it is", remedy)


@contextmanager
def open_fleet(
    argument: str | None, option: str | None, inventory: Sequence[Path] | None, keep: bool = True
) -> Iterator[tuple[Fleet, str | None]]:
    """Yield all hosts of the inventory, connected on first use, and the job's name if one is given.

    Without ``keep``, the command asks the hosts only once.
    """
    chosen, name = find_job(argument, option, inventory)
    with _connected(chosen, keep) as fleet:
        yield fleet, name


@contextmanager
def _connected(inventory: Inventory, keep: bool = True) -> Iterator[Fleet]:
    """Yield all hosts of an inventory, connected on first use. Then name those whose clocks differ."""
    from tfctl.remote.fleet import Fleet

    with Fleet(inventory.hosts, keep) as fleet:
        yield fleet
        say_clocks(fleet)


def say_clocks(fleet: Fleet) -> None:
    """Name, once, the hosts whose clocks differ from this machine's."""
    from tfctl.jobs import clocks

    new = {host: offset for host, offset in fleet.clock_offsets.copy().items() if host not in fleet.reported_clocks}
    if remark := clocks.remark(new):
        say(remark)
    fleet.reported_clocks.update(new)


def job_name(fleet: Fleet, name: str | None) -> str:
    """Return ``name``. If it is None, ask the hosts which job is meant, and name it on stderr."""
    from tfctl.jobs import show

    if name is not None:
        return name
    meant = show.default(*show.overview(fleet)).job
    say_job(meant)
    return meant


def say_job(name: str) -> None:
    """Name the job that is meant, for a command line that names none."""
    say(f"job: {name}")


def parse_task(words: Sequence[str]) -> tuple[str, int | None] | None:
    """Parse ``worker``, ``worker 3`` or ``worker/3`` as role and index; None for no words. Raise UsageError."""
    if not words:
        return None
    role, *index = [*words[0].split("/"), *words[1:]]
    if not role or len(index) > 1 or not all(number.isdecimal() for number in index):
        raise UsageError(f"{' '.join(words)!r} is not a task", "write worker 3, or worker/3")
    return role, int(index[0]) if index else None


def task_of(opened: OpenJob) -> TaskState:
    """Return the one task that the command line names. Raise UsageError if it names none, NotFound for several."""
    from tfctl.jobs.state import select_one

    if opened.task is None:
        tasks = ", ".join(str(task) for task in opened.state.tasks[:3])
        raise UsageError(f"which task of {opened.state.job}?", f"name one, such as {tasks}")
    return select_one(opened.state, *opened.task)


def split_words(words: Sequence[str], job_is_named: bool) -> tuple[str | None, tuple[str, int | None] | None]:
    """Return the job and the task in ``[JOB] [ROLE [INDEX]]``, where a single word may be either and counts as the job.

    ``job_is_named``: an option names it already. Raise UsageError for words of another form.
    """
    rest = list(words)
    of_job = not job_is_named and bool(rest)
    if of_job and (_is_task(rest[0]) or (len(rest) == 2 and rest[1].isdecimal())):
        of_job = False
    job = rest.pop(0) if of_job else None
    return job, parse_task(rest)


def _is_task(word: str) -> bool:
    return bool(_TASK.fullmatch(word)) and (word.rpartition("/")[2].isdecimal() or not Path(word).exists())


def _may_be_role(word: str) -> bool:
    from tfctl.node.names import ROLE

    return ROLE.fullmatch(word) is not None


def find_inventory(option: Sequence[Path] | None, jobfile: Path | None = None, named: Path | None = None) -> Inventory:
    """Load the inventory: ``option``, else the one ``named`` in the job file ``jobfile``, else a default.

    Raise BadFile if it cannot be used, UsageError if there is none.
    """
    from tfctl.remote import inventory, inventory_sources

    if option:
        return inventory.load(inventory_sources.joined(option))
    if named is not None:
        if not named.exists():
            raise BadFile(
                f"{jobfile}: inventory: {named} does not exist",
                inventory.for_missing(named, "correct `inventory:` in the job file, or name the inventory with -i"),
            )
        return inventory.load(named)
    default = default_inventory()
    if default is None:
        raise UsageError("no inventory specified", "give one with -i, or as `inventory:` in the job file")
    return inventory.load(default)


def default_inventory() -> Path | None:
    """Return the inventory that is used if none is specified. That of ansible.cfg may not exist yet, like a lab's."""
    from tfctl.jobs import start_history
    from tfctl.remote import inventory, inventory_sources

    if chosen := os.environ.get("TFCTL_INVENTORY"):
        return inventory_sources.joined([Path(chosen)])
    default, recent = inventory.default_path(), start_history.inventory()
    # One set in the environment is always meant.
    if default is not None and (
        inventory_sources.exists(default) or recent is None or os.environ.get("ANSIBLE_INVENTORY")
    ):
        return default
    if recent is None:
        return None
    path, folder = recent
    say(f"inventory: {path}, last used from {folder}")
    return path


def lay_out(
    file: Path, option: Sequence[Path] | None, env: Sequence[str] | None = None, job: JobFile | None = None
) -> Layout:
    """Return a job file's layout on its inventory. ``env``: the options `-e`. ``job``: the file with some changes.

    Raise UsageError (2), BadFile (3).
    """
    from tfctl.model import layout, load, variables
    from tfctl.model.host import check_logins

    outside = variables.external(env or (), os.environ)
    job = job or load.load(file)
    found = layout.lay_out(job, find_inventory(option, file, job.inventory), str(file), outside=outside)
    check_logins(found.hosts)
    return found


def find_job(
    argument: str | None, option: str | None, inventory: Sequence[Path] | None
) -> tuple[Inventory, str | None]:
    """Return the inventory and the job's name, or None if no job is named. A word with `/` or `.yaml` is a job file.

    Raise UsageError (2), BadFile (3).
    """
    from tfctl.node.names import JOB

    if argument and option and argument != option:
        raise UsageError(f"two jobs specified: {argument} and {option}", "specify only one")
    word = argument or option
    if word and ("/" in word or word.endswith((".yaml", ".yml"))):
        from tfctl.model import load

        job = load.load(Path(word))
        return find_inventory(inventory, Path(word), job.inventory), job.name
    if word and not JOB.fullmatch(word):
        raise UsageError(f"{word!r} is neither a job's name nor a job file (*.yaml)")
    return find_inventory(inventory), word
