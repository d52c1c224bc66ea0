"""tfctl ui: show hosts, jobs, logs and curves in the browser of this machine."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from tfctl.cli.common import InventoryOption, JobOption, say
from tfctl.cli.which import open_fleet


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl ui    tfctl ui digits-ps --open")(ui)


def ui(
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", show_default=False, help="The job to show first: its name or file."),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=1, max=65535, help="The port of this machine. Default: 8470, or a free one."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> int:
    """Show hosts, jobs, logs and curves in the browser.

    Prints the URL, which contains a token: only who has it can read the page. The page cannot change anything, and
    only this machine can reach it. Ctrl-C ends it, and leaves nothing on the hosts.
    """
    from tfctl.jobs import show
    from tfctl.ui.server import serve

    def ready(url: str, once: str) -> None:
        typer.echo(url)
        say("Ctrl-C ends it")
        if open_browser:
            threading.Thread(target=_open, args=(once,), daemon=True).start()

    with open_fleet(job, job_option, inventory) as (fleet, name):
        if name is not None:
            show.one(fleet, name)  # raises if there is none
        serve(fleet, name, port, ready)
    return 0


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        say("no browser was found: open the URL in one")
