"""tfctl render: show every file that start would install, without sending anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import (
    EnvOption,
    InventoryOption,
    JobFileArgument,
    JobFileOption,
    OutputFormat,
    OutputOption,
    named,
    say,
)
from tfctl.cli.which import lay_out
from tfctl.errors import BadFile
from tfctl.wording import plain_lines

if TYPE_CHECKING:
    from tfctl.cli.objects import RenderedObject


def add_to(app: typer.Typer) -> None:
    app.command()(render)


def render(
    jobfile: JobFileArgument = None,
    job_option: JobFileOption = None,
    inventory: InventoryOption = None,
    env: EnvOption = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Write DIR/HOST/FILE instead of printing.")
    ] = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Show every unit and environment file that start installs. Nothing is sent.

    Values that look like secrets are masked.

    Example: tfctl render job.yaml --to out
    """
    from tfctl.jobs import check, code
    from tfctl.model import env as variables
    from tfctl.model import plan
    from tfctl.model.assign import draft
    from tfctl.model.masking import MASK

    layout = lay_out(named(jobfile, job_option, "job file"), inventory, env)
    listing = code.of_job(layout)
    checked = check.check(layout, listing)
    checked.require()
    job = draft(layout)
    files = plan.files(job)
    for remark in (*checked.warnings, *listing.remarks, *check.without_hosts(layout)):
        say(remark)
    if masked := dict.fromkeys(name for task in job.tasks for name in variables.secret_names(job, task)):
        say(f"shown as {MASK} or in part, because they may be secrets: {', '.join(masked)}")
    if layout.requirements:
        say(f"{layout.requirements.name}: where its packages are depends on the host; `start --dry-run` asks the hosts")
    if to is not None:
        _write(to, files)
    if output is OutputFormat.json:
        rendered: RenderedObject = {"job": job.name, "files": dict(files)}
        text.print_json(rendered)
    elif to is None:
        for path, content in files.items():
            typer.echo(plain_lines(f"# {path}\n{content}"))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content, "utf-8")
    except OSError as error:
        raise BadFile(f"{folder}: cannot be written: {error.strerror}") from None
