"""tfctl tensorboard: show a job's curves in the browser of this machine."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobOption, OutputFormat, OutputOption, say
from tfctl.cli.lines import Splitter
from tfctl.cli.which import open_task, task_of
from tfctl.errors import NotFound, TfctlError
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.cli.objects import TensorboardObject
    from tfctl.cli.which import OpenJob
    from tfctl.jobs.state import TaskState

#: How TensorBoard says where it listens.
_READY = re.compile(r" at http://[^\s/]+:(\d{1,5})/")
_USUAL_PORT = 6006
#: The exit status of env(1) if there is no such program.
_NO_PROGRAM = 127


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
    from tfctl.jobs.exec import execute

    with open_task(words or [], job_option, inventory) as opened, ExitStack() as stack:
        state = opened.state
        task = task_of(opened) if opened.task else _with_output(opened)
        if state.record.stack == "none":
            raise NotFound(f"{state.job} has no stack, and so no TensorBoard", "copy its output: tfctl pull")
        watch = _Watch(opened, task, port, stack, output)
        command = ["tensorboard", "--logdir", state.record.output, "--host", "127.0.0.1", "--port", "0"]
        say(f"starting TensorBoard on {task.host}, for {state.record.output}")
        result = execute(opened.fleet, state, [task], command, watch.take, environment=False)[task]
    if isinstance(result, TfctlError):
        raise result
    if result.status == _NO_PROGRAM:
        raise NotFound(
            f"stack {state.record.stack} has no TensorBoard on {task.host}",
            "copy the output to this machine: tfctl pull",
        )
    raise TfctlError(f"TensorBoard on {task.host} has ended: {watch.last or 'it printed nothing'}")


def _with_output(opened: OpenJob) -> TaskState:
    """Return the first task that decides the job. If its host does not answer, another one that has the output."""
    state = opened.state
    deciders = [task for task in state.tasks if task.name in state.record.deciders]
    tasks = [*deciders, *(state.tasks if state.record.shared else ())]
    return next((task for task in tasks if task.state != "unknown"), (tasks or state.tasks)[0])


class _Watch:
    """Reads what TensorBoard prints, and opens the tunnel once it says where it listens. ``last``: its last line."""

    def __init__(
        self, opened: OpenJob, task: TaskState, port: int | None, stack: ExitStack, output: OutputFormat
    ) -> None:
        self.last = ""
        self._opened, self._task, self._host, self._port, self._stack = opened, task, opened.host(task), port, stack
        self._output = output
        self._lines = {stream: Splitter() for stream in (1, 2)}
        self._open = False

    def take(self, _task: TaskState, stream: int, data: bytes) -> None:
        for line in self._lines[stream].add(data):
            self.last = plain(line).strip() or self.last
            if not self._open and (ready := _READY.search(line)):
                self._open = True
                self._tunnel(int(ready[1]))

    def _tunnel(self, port: int) -> None:
        from tfctl.remote.tunnel import Tunnel

        local_ports = [self._port] if self._port else [_USUAL_PORT, 0]
        tunnel = Tunnel(lambda: self._opened.fleet.connection(self._host), port, local_ports, say)
        self._stack.enter_context(tunnel)
        url = f"http://127.0.0.1:{tunnel.local}/"
        if self._output is OutputFormat.json:
            shown: TensorboardObject = {**tables.place_json(self._opened.state, self._task), "url": url}
            text.print_json(shown)
        else:
            typer.echo(url)
        say("Ctrl-C ends it")
