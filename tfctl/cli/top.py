"""tfctl top: show what jobs, tasks and hosts do at this moment."""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobArgument, JobOption, OutputFormat, OutputOption, say_error
from tfctl.cli.tables import Column, Table
from tfctl.cli.which import open_fleet
from tfctl.errors import TfctlError, first_of
from tfctl.wording import cell, plain

if TYPE_CHECKING:
    from tfctl.cli.objects import TopHostObject, TopObject, TopTaskObject
    from tfctl.jobs.nodes import NodeState
    from tfctl.jobs.state import JobState
    from tfctl.jobs.top import Top, TopTask
    from tfctl.remote.fleet import Fleet

Draw = Callable[[Sequence[str], str], None]
Key = Callable[[float], str]
#: How often (s) the tasks are asked for at most, and how much longer than a round the pause lasts at least.
_EVERY_S, _PAUSE = 5.0, 4.0
#: How often (s) the hosts are: their GPUs and disks change rarely.
_HOSTS_S = 30.0
_KEYS = "q quit   j k scroll   h hosts   space update"


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl top digits-ps")(top)


def top(
    job: JobArgument = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = OutputFormat.text,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as in a pipe.")] = False,
) -> int:
    """Show live what jobs, tasks, GPUs and hosts do.

    Tasks that need attention come first: they have failed, are silent, or leave their GPUs idle. Without JOB, all jobs
    and free GPUs are shown. The figures are those of the last ten seconds. In a pipe and with -o json, they are printed
    once.

    Exit code: 0 all hosts answer, 4 one cannot be reached, 8 one of them has not been provisioned.
    """
    with open_fleet(job, job_option, inventory) as (fleet, name):
        view = _View(fleet, name)
        if output is OutputFormat.json or once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            found = view.look()
            if output is OutputFormat.json:
                text.print_json(_json(found))
            else:
                typer.echo("\n".join(lines(found)))
            for error in found.errors:
                say_error(error)
            return first_of(error.exit for error in found.errors)
        _live(view)
        return 0


class _View:
    """What `top` shows of a fleet: the tasks, asked for each time, and the hosts, asked for now and then."""

    def __init__(self, fleet: Fleet, job: str | None) -> None:
        self._fleet, self._job = fleet, job
        self._hosts: Sequence[NodeState] = ()
        self._asked = -_HOSTS_S

    def look(self) -> Top:
        """Ask the hosts. Raise TfctlError if none answers."""
        from tfctl.jobs import top as what
        from tfctl.provision.node_part import version

        states, errors = what.jobs(self._fleet, self._job)
        if time.monotonic() - self._asked >= _HOSTS_S:
            self._hosts = what.hosts(self._fleet, version())
            self._asked = time.monotonic()
        return what.top(states, self._hosts, errors, self._job)


def lines(found: Top, show_hosts: bool = True) -> list[str]:
    """Return the screen as lines."""
    heads = [line for job in found.jobs for line in _job_lines(job)]
    if not found.jobs:
        heads = ["no job runs; start one: tfctl start job.yaml"]
    parts = [heads]
    if found.tasks:
        parts.append((_TASKS if len(found.jobs) == 1 else _TASKS_OF_JOBS).render(found.tasks).text.split("\n"))
    if show_hosts and found.hosts:
        parts.append(_HOSTS.render(found.hosts).text.split("\n"))
    return [line for number, part in enumerate(parts) for line in ([""] if number else []) + part]


def _job_lines(job: JobState) -> Iterator[str]:
    yield f"{job.job}  attempt {job.attempt}  {text.state_word(job.state)}"
    if job.progress:
        yield f"  {tables.progress_text(job.progress)}"
    if job.reason:
        yield f"  {plain(job.reason)}"


def _cores(row: TopTask) -> str:
    return "" if row.sample.cpu is None else f"{row.sample.cpu:.1f}"


def _size(mib: int | None) -> str:
    if mib is None:
        return ""
    return f"{mib} M" if mib < 1000 else f"{mib / 1024:.{0 if mib >= 10240 else 1}f} G"


def _gpu(row: TopTask) -> str:
    gpus = row.sample.gpus or ()
    use = "" if row.gpu_use is None else f"{row.gpu_use:.0f} %" + (" idle" if row.idle else "")
    used = [gpu.memory for gpu in gpus if gpu.memory is not None]
    hot = [gpu.celsius for gpu in gpus if gpu.celsius is not None]
    return " ".join(filter(None, [use, _size(sum(used)) if used else "", f"{max(hot)}°" if hot else ""]))


def _step(row: TopTask) -> str:
    return "" if row.sample.step is None else f"{row.sample.step:,}"


def _rate(row: TopTask) -> str:
    if row.sample.rate is not None:
        return f"{text.figure(row.sample.rate)}/s"
    return "" if row.sample.pace is None else f"{text.figure(row.sample.pace)} steps/s"


def _silent(row: TopTask) -> str:
    if row.sample.silent is None:
        return ""
    return text.duration(row.sample.silent)


def _columns() -> list[Column[TopTask]]:
    return [
        Column("TASK", lambda row: str(row.task)),
        Column("HOST", lambda row: row.task.host, rank=5),
        Column("STATE", lambda row: "silent" if row.silent else row.task.state, coloured=True),
        Column("CPU", _cores, rank=3),
        Column("MEM", lambda row: _size(row.sample.memory), rank=4),
        Column("GPU", _gpu, if_needed=True, rank=1),
        Column("STEP", _step, if_needed=True, rank=6),
        Column("RATE", _rate, if_needed=True, rank=2),
        Column("LAST LINE", _silent, rank=2),
    ]


_TASKS: Table[TopTask] = Table(*_columns())
_TASKS_OF_JOBS: Table[TopTask] = Table(Column("JOB", lambda row: row.job.job), *_columns())


def _gpus_free(state: NodeState) -> str:
    node = state.node
    if node is None or not node.gpus:
        return ""
    return f"{sum(not gpu.holder for gpu in node.gpus)} of {len(node.gpus)} free"


_HOSTS: Table[NodeState] = Table(
    Column("HOST", lambda state: state.host.name),
    Column("STATE", lambda state: state.state, coloured=True),
    Column("LOAD", lambda state: f"{state.node.load:.1f} of {state.node.cpus or '?'}" if state.node else ""),
    Column(
        "MEM FREE",
        lambda state: _size(state.node.memory_mib[1]) if state.node and state.node.memory_mib else "",
    ),
    Column("GPUS", _gpus_free, if_needed=True),
    Column("TASKS", lambda state: str(len(state.node.tasks)) if state.node else ""),
)


def _json(found: Top) -> TopObject:
    return {
        "jobs": [
            {"job": job.job, "attempt": job.attempt, "state": job.state, "progress": tables.progress_json(job)}
            for job in found.jobs
        ],
        "tasks": [_task_json(row) for row in found.tasks],
        "hosts": [_host_json(state) for state in found.hosts],
    }


def _task_json(row: TopTask) -> TopTaskObject:
    sample = row.sample
    return {
        "job": row.job.job,
        "task": str(row.task),
        "host": row.task.host,
        "state": row.task.state,
        "cpu": sample.cpu,
        "memory": None if sample.memory is None else sample.memory * 2**20,
        "gpus": [
            {
                "uuid": uuid,
                "use": gpu.use,
                "memory": None if gpu.memory is None else gpu.memory * 2**20,
                "celsius": gpu.celsius,
                "watts": gpu.watts,
                "mhz": gpu.mhz,
            }
            for uuid, gpu in zip(row.task.record.gpus, sample.gpus or (), strict=False)
        ],
        "step": sample.step,
        "rate": sample.rate,
        "silent_for": sample.silent,
    }


def _host_json(state: NodeState) -> TopHostObject:
    node = state.node
    return {
        "host": state.host.name,
        "state": state.state,
        "load": node.load if node else None,
        "cpus": node.cpus if node else None,
        "gpus": len(node.gpus) if node else None,
        "gpus_free": sum(not gpu.holder for gpu in node.gpus) if node else None,
    }


def _live(view: _View) -> None:
    """Show the view until `q` is pressed."""
    shown: Top | None = None
    complaint, top_line, show_hosts, due = "asking the hosts", 0, True, 0.0
    with _screen() as draw, _keys() as key:
        draw([complaint], "")
        while True:
            if time.monotonic() >= due:
                began = time.monotonic()
                try:
                    shown, complaint = view.look(), ""
                except TfctlError as error:  # the last figures stay until a host answers again
                    complaint = cell(error.message)
                due = time.monotonic() + max(_EVERY_S, _PAUSE * (time.monotonic() - began))
            every = lines(shown, show_hosts) if shown else []
            top_line = max(0, min(top_line, len(every) - (shutil.get_terminal_size().lines - 1)))
            draw(every[top_line:], _KEYS if not complaint else f"{complaint}   {_KEYS}")
            pressed = key(max(0.0, due - time.monotonic()))
            if pressed == "q":
                return
            top_line += {"j": 1, "k": -1}.get(pressed, 0)
            show_hosts = show_hosts != (pressed == "h")
            due = 0.0 if pressed == " " else due


@contextmanager
def _screen() -> Iterator[Draw]:
    """Use the terminal's other screen, and draw only lines that have changed: over a slow connection, too, it is
    calm."""
    before: list[str] = []

    def draw(body: Sequence[str], foot: str) -> None:
        nonlocal before
        size = shutil.get_terminal_size()
        rows = [text.cropped(line, size.columns) for line in body[: size.lines - 1]]
        rows += [""] * (size.lines - 1 - len(rows)) + [text.cropped(foot, size.columns)]
        if len(before) != len(rows):
            before = []
            sys.stdout.write("\033[2J")
        for number, row in enumerate(rows):
            if not before or before[number] != row:
                sys.stdout.write(f"\033[{number + 1};1H\033[K{row}")
        before = rows
        sys.stdout.flush()

    sys.stdout.write("\033[?1049h\033[?25l")
    try:
        yield draw
    finally:
        sys.stdout.write("\033[?25h\033[?1049l")
        sys.stdout.flush()


@contextmanager
def _keys() -> Iterator[Key]:
    """Yield a function that returns the key that is pressed within a time (s), or ""."""
    import termios
    import tty

    terminal = sys.stdin.fileno()
    settings = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def key(within: float) -> str:
        ready, _, _ = select.select([terminal], [], [], within)
        pressed = os.read(terminal, 16).decode(errors="ignore") if ready else ""
        return {"\033[A": "k", "\033[B": "j"}.get(pressed, pressed[:1])

    try:
        yield key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, settings)
