"""tfctl exec: run a command beside tasks, with their environment."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
import termios
from codecs import getincrementaldecoder
from collections import defaultdict
from contextlib import suppress
from io import IncrementalNewlineDecoder
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperCommand

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobOption, OutputFormat, say, say_error
from tfctl.cli.stdout import require_reader
from tfctl.cli.which import open_task
from tfctl.errors import TfctlError, UsageError
from tfctl.wording import plain_lines, printed

if TYPE_CHECKING:
    from tfctl.cli.objects import ExecEndObject, ExecErrorObject, ExecLineObject, PlaceObject
    from tfctl.jobs.state import JobState, TaskState
    from tfctl.node.wire import Exited

_COMMAND = "tfctl.command"
_Decoder = getincrementaldecoder("utf-8")


class _WithCommand(TyperCommand):
    """A command whose words after ``--`` are a command for the hosts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])


def add_to(app: typer.Typer) -> None:
    app.command(
        "exec",
        cls=_WithCommand,
        epilog="Examples: tfctl exec worker 0 -- nvidia-smi    tfctl exec digits-ps worker -- python -V",
    )(run)


def run(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] [ROLE [INDEX]] -- COMMAND",
            show_default=False,
            help="A job's name or file (default: the running job, or the last one), then all tasks of a role, or one: "
            "worker 3, worker/3. For all tasks of a job, name the job alone.",
        ),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: Annotated[
        OutputFormat,
        typer.Option("--output", "-o", help="text, or json: an object per line, and one per task at the end."),
    ] = OutputFormat.text,
) -> int:
    """Run a command beside one task or several.

    The command has the task's environment and working directory. It runs as user tfctl in the same sandbox as tasks,
    with an empty stdin: what is piped to tfctl is not passed on. The exit code is that of the command or, for several
    tasks, the first in their order that is not 0. Ctrl-C ends the command on the hosts.
    """
    from tfctl.jobs.exec import execute, exit_code
    from tfctl.jobs.state import select

    command = context.meta.get(_COMMAND) or []
    if not command:
        raise UsageError("no command is given", "write it after two dashes: tfctl exec worker 0 -- nvidia-smi")
    with open_task(words or [], job_option, inventory) as opened:
        if opened.task is None and not opened.named:
            raise UsageError(
                "no task specified", f"name one, as in: tfctl exec {opened.state.job} worker 0 -- nvidia-smi"
            )
        tasks = select(opened.state, *opened.task) if opened.task else opened.state.tasks
        if _has_input():
            say("the command has no input: what is piped to tfctl exec is not passed on")
        as_json = output is OutputFormat.json
        take = _Json(opened.state) if as_json else _Raw() if len(tasks) == 1 else _Prefixed(tasks)
        try:
            results = execute(opened.fleet, opened.state, tasks, command, take)
        finally:
            take.close()
    for task in tasks:
        result = results[task]
        if as_json:
            print(json.dumps(_ended_json(tables.place_json(opened.state, task), result)), flush=True)
        elif isinstance(result, TfctlError):
            say_error(result)
        elif result.signal:
            say(f"{task}: the command was ended by {result.signal}")
    return exit_code(results)


def _has_input() -> bool:
    """Return whether stdin is a file, or a pipe that somebody has written to."""
    with suppress(OSError):
        kind = os.fstat(0).st_mode
        return stat.S_ISREG(kind) or (stat.S_ISFIFO(kind) and any(fcntl.ioctl(0, termios.FIONREAD, bytes(4))))
    return False


def _ended_json(place: PlaceObject, result: Exited | TfctlError) -> ExecEndObject | ExecErrorObject:
    if isinstance(result, TfctlError):
        return {**place, "error": result.json()}
    return {**place, "exit_code": result.status, "signal": result.signal}


def _sink(stream: int) -> TextIO:
    return sys.stdout if stream == 1 else sys.stderr


class _Raw:
    """Passes on what one command writes, unchanged unless it goes to a terminal."""

    def __init__(self) -> None:
        self._decoders = {stream: IncrementalNewlineDecoder(_Decoder("replace"), translate=True) for stream in (1, 2)}

    def __call__(self, _task: TaskState, stream: int, data: bytes) -> None:
        sink = _sink(stream)
        if sink.isatty():
            sink.write(plain_lines(self._decoders[stream].decode(data)))
        else:
            sink.buffer.write(data)
        sink.flush()
        require_reader()

    def close(self) -> None:
        for stream, decoder in self._decoders.items():
            sink = _sink(stream)
            sink.write(plain_lines(decoder.decode(b"", final=True)))
            sink.flush()


class _Lines:
    """Passes on what several commands write, line by line."""

    def __init__(self) -> None:
        from tfctl.jobs.exec import Splitter

        self._splitters: defaultdict[tuple[TaskState, int], Splitter] = defaultdict(Splitter)

    def __call__(self, task: TaskState, stream: int, data: bytes) -> None:
        for line in self._splitters[task, stream].add(data):
            self._print(task, stream, line)
        require_reader()

    def close(self) -> None:
        for (task, stream), splitter in self._splitters.items():
            if rest := splitter.rest():
                self._print(task, stream, rest)

    def _print(self, task: TaskState, stream: int, line: str) -> None:
        raise NotImplementedError


class _Prefixed(_Lines):
    """Prints each line with its task."""

    def __init__(self, tasks: tuple[TaskState, ...]) -> None:
        super().__init__()
        self._width = max(len(str(task)) for task in tasks)

    def _print(self, task: TaskState, stream: int, line: str) -> None:
        prefix = text.coloured(f"{str(task).ljust(self._width)} │", "cyan")
        for each in printed(line):
            print(f"{prefix} {each}", file=_sink(stream), flush=True)


class _Json(_Lines):
    """Prints each line as an object."""

    def __init__(self, state: JobState) -> None:
        super().__init__()
        self._state = state

    def _print(self, task: TaskState, stream: int, line: str) -> None:
        written: ExecLineObject = {
            **tables.place_json(self._state, task),
            "stream": "stdout" if stream == 1 else "stderr",
            "line": line,
        }
        print(json.dumps(written), flush=True)
