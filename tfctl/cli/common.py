"""Options that several commands share, and how they find the inventory and the job."""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.errors import BadFile, UsageError
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.model.host import Inventory
    from tfctl.model.job import Layout


class Output(StrEnum):
    text = "text"
    json = "json"


InventoryOption = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        "-i",
        show_default=False,
        help="Ansible inventory. Default: the job file's, ANSIBLE_INVENTORY, ansible.cfg, the last start's.",
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text, or json: one object.")]
JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB", show_default=False, help="A job's name or file. Default: the running job, or the last one."
    ),
]
JobOption = Annotated[str | None, typer.Option("--job", "-j", show_default=False, help="The same as JOB.")]
#: For commands that require a file. Each argument is also an option, as in the other commands; see `named`.
JobFileArgument = Annotated[
    Path | None, typer.Argument(metavar="JOBFILE", show_default=False, help="The job file (YAML).")
]
JobFileOption = Annotated[Path | None, typer.Option("--job", "-j", show_default=False, help="The same as JOBFILE.")]
InventoryArgument = Annotated[
    Path | None, typer.Argument(metavar="INVENTORY", show_default=False, help="An Ansible inventory.")
]
SameInventoryOption = Annotated[
    Path | None, typer.Option("--inventory", "-i", show_default=False, help="The same as INVENTORY.")
]

#: For commands that provision.
StackOption = Annotated[
    str | None,
    typer.Option(help="The stack for all hosts, overriding the inventory's tfctl_stack; none: no TensorFlow."),
]
PythonTreeOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        show_default=False,
        help="A CPython on this machine for hosts without one that fits their stack, such as "
        "~/.pyenv/versions/3.7.16; may be repeated.",
    ),
]
LimitOption = Annotated[str | None, typer.Option(help="Only hosts that match this Ansible pattern.")]
#: For commands that start a job.
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Ask the hosts and show what would be started.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended, then stop what still runs.")]
TimeoutOption = Annotated[
    str | None,
    typer.Option("--timeout", metavar="DURATION", show_default=False, help="With --wait, wait at most this long."),
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Print the logs, and the job's name on stderr.")]


def named(argument: Path | None, option: Path | None, what: str) -> Path:
    """Return the required file, given as argument or option. Raise UsageError for two, typer.BadParameter for none."""
    if argument and option and argument != option:
        raise UsageError(f"two are named, {argument} and {option}", "name one")
    found = argument or option
    if found is None:
        raise typer.BadParameter(f"no {what} is named", param_hint=what.replace(" ", "").upper())
    return found


def find_inventory(option: Path | None, beside: Path | None = None, named: str | None = None) -> Inventory:
    """Load the inventory: ``option``, else the one ``named`` in the job file ``beside``, else a default.

    Raise BadFile if it cannot be used, UsageError if there is none.
    """
    from tfctl.jobs import last
    from tfctl.remote import inventory

    if option is not None:
        return inventory.load(option)
    if named is not None and beside is not None:
        path = _beside(beside, "inventory", named)
        if not path.exists():
            raise BadFile(
                f"{beside}: inventory: {path} does not exist", "name one with -i, or create a lab's: tfctl lab up"
            )
        return inventory.load(path)
    default, recent = inventory.default_path(), last.inventory()
    # The one in ansible.cfg may not exist yet, like a lab's; one set in the environment is always meant.
    if default is not None and (default.exists() or recent is None or os.environ.get("ANSIBLE_INVENTORY")):
        return inventory.load(default)
    if recent is None:
        raise UsageError("no inventory is named", "give one with -i, or as `inventory:` in the job file")
    say(f"inventory: {recent}, from the last start")
    return inventory.load(recent)


def lay_out(file: Path, option: Path | None) -> tuple[Layout, Path]:
    """Return a job file's layout on its inventory, and its code directory. Raise BadFile (3)."""
    from tfctl.model import load, placement

    job = load.load(file)
    code = code_folder(file, job.code)
    return placement.lay_out(job, find_inventory(option, file, job.inventory), str(file)), code


def code_folder(file: Path, code: str) -> Path:
    """Return the directory that ``code`` in a job file names. Raise BadFile (3)."""
    found = _beside(file, "code", code).resolve()
    if not found.is_dir():
        raise BadFile(f"{file}: code: {found} is not a directory")
    return found


def _beside(file: Path, key: str, path: str) -> Path:
    """Resolve a path in a job file, relative to that file. Raise BadFile (3)."""
    try:
        return file.parent / Path(path).expanduser()
    except RuntimeError:
        raise BadFile(f"{file}: {key}: {path}: this machine has no such user", "write the full path") from None


def find_job(argument: str | None, option: str | None, inventory: Path | None) -> tuple[Inventory, str | None]:
    """Return the inventory and the job's name, or None if no job is named. A word with `/` or `.yaml` is a job file.

    Raise UsageError (2), BadFile (3).
    """
    from tfctl.node.names import JOB

    if argument and option and argument != option:
        raise UsageError(f"two jobs are named, {argument} and {option}", "name one")
    word = argument or option
    if word and ("/" in word or word.endswith((".yaml", ".yml"))):
        from tfctl.model import load

        job = load.load(Path(word))
        return find_inventory(inventory, Path(word), job.inventory), job.name
    if word and not JOB.fullmatch(word):
        raise UsageError(f"{word!r} is neither a job's name nor a job file (*.yaml)")
    return find_inventory(inventory), word


def say(text: str) -> None:
    """Write a message to stderr at once. If stderr is closed, carry on."""
    with suppress(OSError):
        typer.echo(plain(text), err=True)
