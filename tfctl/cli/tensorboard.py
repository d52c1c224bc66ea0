"""tfctl tensorboard: show a job's curves in the browser of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobOption, OutputFormat, OutputOption, say
from tfctl.cli.which import open_task, task_of

if TYPE_CHECKING:
    from tfctl.cli.objects import TensorboardObject


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl tensorboard    tfctl tensorboard digits-ps --port 6007")(tensorboard)


def tensorboard(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] [ROLE [INDEX]]",
            show_default=False,
            help="A job's name or file (default: the running job, or the last one), then the task whose host has the "
            "output (default: the task that decides the result of the job).",
        ),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=1, max=65535, help="The port of this machine.")
    ] = None,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Run TensorBoard where the job's output is, and show it here.

    Runs the TensorBoard of the job's stack, and prints the URL. Works during the job and after it. Ctrl-C ends
    TensorBoard and the tunnel. It has no password: until then, other users of the host and of this machine can connect.
    """
    from tfctl.jobs import tensorboard as board

    with open_task(words or [], job_option, inventory) as opened:
        state = opened.state
        task = task_of(opened) if opened.task else board.place(state)
        board.check(state)

        def ready(local: int) -> None:
            url = f"http://127.0.0.1:{local}/"
            if output is OutputFormat.json:
                shown: TensorboardObject = {**tables.place_json(state, task), "url": url}
                text.print_json(shown)
            else:
                typer.echo(url)
            say("Ctrl-C ends it")

        say(f"starting TensorBoard on {task.host}, for {state.record.output}")
        board.run(opened.fleet, state, task, [port] if port else [board.USUAL_PORT, 0], ready, say)
    return 0
