"""Options that several commands share, and their messages on stderr."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tfctl.errors import TfctlError, UsageError
from tfctl.wording import listed, shown, with_remedy


class OutputFormat(StrEnum):
    text = "text"
    json = "json"


class TableFormat(StrEnum):
    """Of commands that print tables. ``wide``: text with all columns."""

    text = "text"
    wide = "wide"
    json = "json"


InventoryOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--inventory",
        "-i",
        show_default=False,
        help="Ansible inventory, or hosts separated by commas; may be repeated. Default: the job file's, "
        "TFCTL_INVENTORY, ANSIBLE_INVENTORY, ansible.cfg, or that of the last start from this directory or a parent.",
    ),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="text, or json: one object.")]
#: For commands that print tables.
TableOption = Annotated[
    TableFormat, typer.Option("--output", "-o", help="text, wide (text with all columns), or json: one object.")
]
JobArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB", show_default=False, help="A job's name or file. Default: the running job, or the last one."
    ),
]
#: For commands that change a job.
ChangedJobArgument = Annotated[
    str | None,
    typer.Argument(metavar="JOB", show_default=False, help="A job's name or file. Default: the only job that runs."),
]
JobOption = Annotated[str | None, typer.Option("--job", "-j", show_default=False, help="The same as JOB.")]
#: For commands that require a file. Each argument is also an option, as in the other commands; see `named`.
JobFileArgument = Annotated[
    Path | None, typer.Argument(metavar="JOBFILE", show_default=False, help="The job file (YAML).")
]
JobFileOption = Annotated[Path | None, typer.Option("--job", "-j", show_default=False, help="The same as JOBFILE.")]
InventoryArgument = Annotated[
    Path | None, typer.Argument(metavar="INVENTORY", show_default=False, help="An Ansible inventory. Required.")
]
SameInventoryOption = Annotated[
    list[Path] | None,
    typer.Option("--inventory", "-i", show_default=False, help="The same as INVENTORY; may be repeated."),
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
        help="A CPython 3.6 or 3.7 directory on this machine, such as ~/.pyenv/versions/3.7.16, for hosts whose stack "
        "accepts no newer Python; may be repeated.",
    ),
]
AskBecomePassOption = Annotated[
    bool,
    typer.Option("--ask-become-pass", "-K", help="Ask once for the sudo password of the hosts. Jobs do not need it."),
]
LimitOption = Annotated[str | None, typer.Option(help="Only hosts that match this Ansible pattern.")]
#: For commands that read a job file.
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        "-e",
        metavar="NAME=VALUE",
        show_default=False,
        help="Set a variable of all tasks, overriding the job file; NAME alone: the shell's value. May be repeated.",
    ),
]
#: For commands that start a job.
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Ask the hosts and show what would be started.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Print the logs until the job has ended, and exit as with --wait.")
]


def named(argument: Path | None, option: Path | None, what: str) -> Path:
    """Return the required file, given as argument or option. Raise UsageError for two, typer.BadParameter for none."""
    if argument and option and argument != option:
        raise UsageError(f"{what} given twice: {argument} and {option}", "specify only one")
    found = argument or option
    if found is None:
        raise typer.BadParameter(f"no {what} specified", param_hint=what.replace(" ", "").upper())
    return found


def named_inventory(argument: Path | None, options: list[Path] | None) -> Path:
    """Return the required inventory, or several. Raise as `named`."""
    from tfctl.remote import inventory_sources

    if argument and options and options != [argument]:
        given = listed([str(path) for path in (argument, *options)])
        raise UsageError(f"inventory given twice: {given}", "name one, or repeat -i to merge several")
    if not (argument or options):
        raise typer.BadParameter("no inventory specified", param_hint="INVENTORY")
    return inventory_sources.joined([argument] if argument else options or [])


def wants_json(output: OutputFormat, follow: bool) -> bool:
    """Return whether the result is printed as JSON. Raise UsageError if logs are to be printed as well."""
    if output is OutputFormat.json and follow:
        raise UsageError("--follow prints logs, and -o json prints one object", "use tfctl logs -f -o json beside it")
    return output is OutputFormat.json


def say(text: str) -> None:
    """Write a message to stderr at once. If stderr is closed, carry on."""
    with suppress(OSError):
        typer.echo(shown(text), err=True)


def say_error(error: TfctlError) -> None:
    """Write an error to stderr: its message, then its remedy after an arrow."""
    say(with_remedy("tfctl: " + error.message, error.remedy))
