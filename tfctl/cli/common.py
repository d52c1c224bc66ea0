"""What several verbs share: their options, and which inventory they mean."""

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
        help="Ansible inventory. Default: the job file's, ANSIBLE_INVENTORY, ansible.cfg, that of the last start.",
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text, or json: one object.")]
JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB", show_default=False, help="A job's name or file. Default: the one that runs, or ran last."
    ),
]
JobOption = Annotated[str | None, typer.Option("--job", "-j", show_default=False, help="The same as JOB.")]
#: Of verbs that cannot do without: each word is an option too, as it is of the other verbs; see `named`.
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

#: Of verbs that provision.
StackOption = Annotated[
    str | None,
    typer.Option(help="For all hosts, in place of the inventory's tfctl_stack; none: without TensorFlow."),
]
PythonTreeOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        show_default=False,
        help="A CPython of this machine for hosts that have none their stack takes, such as "
        "~/.pyenv/versions/3.7.16; may be repeated.",
    ),
]
LimitOption = Annotated[str | None, typer.Option(help="Only hosts of this Ansible pattern.")]
#: Of verbs that begin a job.
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Ask the hosts, show what would be started.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it has ended; then stop what of it still runs.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="DURATION", show_default=False, help="With --wait, at most so long.")
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Print the logs, and the job's name on stderr.")]


def named(argument: Path | None, option: Path | None, what: str) -> Path:
    """The file that a verb cannot do without, by its word or its option. Raises UsageError, typer.BadParameter."""
    if argument and option and argument != option:
        raise UsageError(f"two are named, {argument} and {option}", "name one")
    found = argument or option
    if found is None:
        raise typer.BadParameter(f"no {what} is named", param_hint=what.replace(" ", "").upper())
    return found


def find_inventory(option: Path | None, beside: Path | None = None, named: str | None = None) -> Inventory:
    """The inventory a verb means; ``named`` is what the job file ``beside`` it says. Raises BadFile, UsageError."""
    from tfctl.jobs import last
    from tfctl.remote import inventory

    if option is not None:
        return inventory.load(option)
    if named is not None and beside is not None:
        path = _beside(beside, "inventory", named)
        if not path.exists():
            raise BadFile(
                f"{beside}: inventory: {path} is not there", "name one with -i, or make the lab's: tfctl lab up"
            )
        return inventory.load(path)
    default, recent = inventory.default_path(), last.inventory()
    # What ansible.cfg names may be yet to come, as a lab's is; what somebody has set is meant.
    if default is not None and (default.exists() or recent is None or os.environ.get("ANSIBLE_INVENTORY")):
        return inventory.load(default)
    if recent is None:
        raise UsageError("no inventory is named", "give one with -i, or as `inventory:` in the job file")
    say(f"inventory: {recent}, that of the last start")
    return inventory.load(recent)


def lay_out(file: Path, option: Path | None) -> tuple[Layout, Path]:
    """A job file placed on its inventory, and its code directory. Raises BadFile (3)."""
    from tfctl.model import load, placement

    job = load.load(file)
    code = code_folder(file, job.code)
    return placement.lay_out(job, find_inventory(option, file, job.inventory), str(file)), code


def code_folder(file: Path, code: str) -> Path:
    """What ``code`` of a job file means. Raises BadFile (3)."""
    found = _beside(file, "code", code).resolve()
    if not found.is_dir():
        raise BadFile(f"{file}: code: {found} is not a directory")
    return found


def _beside(file: Path, key: str, path: str) -> Path:
    """What a path in a job file means. Raises BadFile (3)."""
    try:
        return file.parent / Path(path).expanduser()
    except RuntimeError:
        raise BadFile(f"{file}: {key}: {path}: this machine has no such user", "write the whole path") from None


def find_job(argument: str | None, option: str | None, inventory: Path | None) -> tuple[Inventory, str | None]:
    """The inventory and the job's name that the words mean; a word with `/` or `.yaml` is a job file.

    None: no job is named. Raises UsageError (2), BadFile (3).
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
    """Talk: to stderr, at once. Where nobody hears it any more, the verb goes on."""
    with suppress(OSError):
        typer.echo(plain(text), err=True)
