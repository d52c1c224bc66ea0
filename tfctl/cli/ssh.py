"""tfctl ssh: log in to the host of a task."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobOption, OutputFormat, say
from tfctl.cli.which import open_task, task_of
from tfctl.errors import TfctlError

if TYPE_CHECKING:
    from tfctl.cli.objects import LoginObject


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl ssh worker 3    tfctl ssh digits-ps ps/0")(ssh)


def ssh(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] ROLE [INDEX]",
            show_default=False,
            help="A job's name or file (default: the running job, or the last one), then a task: worker 3, worker/3.",
        ),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="text, or json: print the ssh command instead of running it.")
    ] = OutputFormat.text,
) -> int:
    """Log in to the host of a task.

    Runs your own ssh client with the settings of the inventory. You are the user who logs in, not the user tfctl that
    runs the jobs. To run something in the task's environment, use tfctl exec. If the host is this machine, this opens
    a shell.
    """
    from tfctl.remote import login

    with open_task(words or [], job_option, inventory) as opened:
        task = task_of(opened)
        command = login.words(opened.host(task))
        if output is OutputFormat.json:
            login_command: LoginObject = {**tables.place_json(opened.state, task), "command": [*command]}
            text.print_json(login_command)
            return 0
    say(f"{task} runs on {task.host}" if task.alive else f"{task} was on {task.host}, {task.state} now")
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        if command[0] != "ssh":
            raise TfctlError(f"{command[0]} does not exist", "set SHELL to a shell that does") from None
        raise TfctlError("ssh is not installed", "install it: apt install openssh-client") from None
