"""tfctl forward: reach a port of a task's host from this machine."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobOption, OutputFormat, OutputOption, say
from tfctl.cli.which import open_task, task_of
from tfctl.errors import UsageError

if TYPE_CHECKING:
    from tfctl.cli.objects import ForwardedObject


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl forward worker 0:6006    tfctl forward digits-ps worker/0:8888 9000")(forward)


def forward(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] ROLE INDEX:PORT [LOCAL]",
            show_default=False,
            help="A task and a port of its host, then a port of this machine (default: the same number, if it is "
            "free).",
        ),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Reach a port of a task's host from this machine.

    Listens on the loopback address of this machine, and forwards connections to that of the host over ssh. Prints the
    address. Ctrl-C ends it. Until then, other users of this machine can connect to the port too, and reach what listens
    on the host. If the host is this machine, it listens on another port than the task's.
    """
    from tfctl.remote.tunnel import Tunnel

    task_words, port, local = parse(words or [])
    with open_task(task_words, job_option, inventory) as opened:
        task = task_of(opened)
        host = opened.host(task)
        local_ports = [port, 0] if local is None else [local]
        if host.is_local and local_ports[0] == port:  # connections would be forwarded to the tunnel itself
            if local is not None:
                raise UsageError(f"{task} runs on this machine", f"connect to 127.0.0.1:{port} directly")
            local_ports = [0]
        with Tunnel(lambda: opened.fleet.connection(host), port, local_ports, say) as tunnel:
            if output is OutputFormat.json:
                place = tables.place_json(opened.state, task)
                forwarded: ForwardedObject = {
                    **place,
                    "address": "127.0.0.1",
                    "port": tunnel.local,
                    "host_port": port,
                }
                text.print_json(forwarded)
            else:
                typer.echo(f"127.0.0.1:{tunnel.local}")
            say(f"forwarding to port {port} of {task.host}, the host of {task}; Ctrl-C ends it")
            over = threading.Event()
            while not over.wait(1.0):
                pass


def parse(words: list[str]) -> tuple[list[str], int, int | None]:
    """Return the words that name the task, the port of its host and that of this machine. Raise UsageError."""
    place = next((number for number, word in enumerate(words) if re.fullmatch(r"[^:]*:\d{1,5}", word)), None)
    if place is None or len(words) > place + 2:
        raise UsageError(f"{' '.join(words)!r} names no port of a task", "tfctl forward worker 0:6006")
    task, _, port = words[place].partition(":")
    local = words[place + 1] if len(words) > place + 1 else None
    if local is not None and not local.isdecimal():
        raise UsageError(f"{local!r} is not a port", "tfctl forward worker 0:6006 8080")
    numbers = [int(port), int(local or port)]
    if not all(0 < number < 65536 for number in numbers):
        raise UsageError("a port is a number from 1 to 65535")
    return [*words[:place], *([task] if task else [])], numbers[0], numbers[1] if local else None
