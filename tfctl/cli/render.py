"""tfctl render: show every file that start would install, without sending anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfctl.cli.common import InventoryOption, JobFileArgument, JobFileOption, named, say
from tfctl.cli.which import lay_out
from tfctl.errors import BadFile


def add_to(app: typer.Typer) -> None:
    app.command()(render)


def render(
    jobfile: JobFileArgument = None,
    job_option: JobFileOption = None,
    inventory: InventoryOption = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Write DIR/HOST/FILE instead of printing.")
    ] = None,
) -> None:
    """Show every unit and environment file that start would install. Nothing is sent.

    Example: tfctl render job.yaml --to out
    """
    from tfctl.model import plan, shell
    from tfctl.model.assign import assign
    from tfctl.model.host import Site
    from tfctl.model.job import Job

    layout = lay_out(named(jobfile, job_option, "job file"), inventory)
    sites = {host.name: Site(host.address or host.name, {}) for host in layout.hosts}
    job = Job(layout, attempt=1, run="00000000", started=0.0, tasks=assign(layout, sites), secret="0" * 32)
    files = plan.files(job)
    for remark in (*layout.notes, *shell.remarks(layout.slots)):
        say(remark)
    if layout.requirements:
        say(f"{layout.requirements.name}: where its packages are depends on the host; `start --dry-run` asks the hosts")
    if to is None:
        for path, text in files.items():
            typer.echo(f"# {path}\n{text}")
        return
    try:
        for path, text in files.items():
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            (to / path).write_text(text, "utf-8")
    except OSError as error:
        raise BadFile(f"{to}: cannot be written: {error.strerror}") from None
