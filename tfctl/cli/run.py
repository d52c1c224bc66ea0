"""tfctl run: run a job's tasks as processes on this machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli.common import EnvOption, JobFileArgument, JobFileOption, OutputFormat, named, say
from tfctl.errors import BadFile, Exit, TfctlError
from tfctl.wording import Lines, counted, listed

if TYPE_CHECKING:
    from tfctl.jobs.state import JobState
    from tfctl.local.run import LocalJob
    from tfctl.local.runtimes import Runtimes
    from tfctl.model.host import Inventory
    from tfctl.model.jobfile import JobFile


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl run digits/job.yaml")(run)


def run(
    jobfile: JobFileArgument = None,
    job_option: JobFileOption = None,
    local: Annotated[  # noqa: ARG001
        bool, typer.Option("--local", hidden=True, help="The default, and the only place.")
    ] = True,
    python: Annotated[
        str | None,
        typer.Option(
            "--python",
            metavar="stack|active|PATH",
            show_default=False,
            help="Which Python runs the script: that of the job's stack, the active one, or the one at PATH, which may "
            "be a virtual environment. Default: stack; active where there are no stacks, such as on macOS.",
        ),
    ] = None,
    env: EnvOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="DIR", show_default=False, help="Output directory. Default: tfctl-output/JOB."
        ),
    ] = None,
    lines: Annotated[
        OutputFormat, typer.Option("-o", help="text, or json: an object per line of the logs.")
    ] = OutputFormat.text,
) -> int:
    """Run every task of a job on this machine. Needs no ssh, systemd, root or inventory.

    Installs the job's stack and requirements in your cache if they are missing. Prints the logs. Ctrl-C ends all tasks.
    Exit code: 0 the job succeeded, 100 it failed, 101 the program that read the logs exited first, 8 the stack cannot
    be installed, 130 Ctrl-C.
    """
    from tfctl.jobs import check, code
    from tfctl.local import cached
    from tfctl.local.environment import temporary_directories
    from tfctl.local.environments import Environments
    from tfctl.local.place import lay_out_here, place
    from tfctl.local.run import LocalJob
    from tfctl.local.runtimes import Chooser
    from tfctl.model import load, variables
    from tfctl.model.values import NO_OUTPUT

    jobfile = named(jobfile, job_option, "job file")
    given = variables.external(env or (), os.environ).given
    job = load.load(jobfile)
    out: Path | None = (output or Path(code.LOCAL_OUTPUT, job.name)).expanduser().absolute()
    if output is None and job.output == NO_OUTPUT:
        out = None
    ports = cached.folder().with_name("local-ports")
    with temporary_directories() as (library, programs):
        draws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        environments = Environments(say, sys.stderr.fileno() if draws else None)
        chooser = Chooser(job, os.environ, lambda: _inventory(jobfile, job), environments, programs, say)
        runtimes = chooser.choose(python)
        layout = lay_out_here(job, jobfile, out, os.environ, runtimes, given)
        checked = check.check(layout, None)
        checked.require()
        runtimes = chooser.make(runtimes)
        with place(layout, os.environ, ports, runtimes) as job_here:
            local_job = LocalJob(job_here, os.environ, library, runtimes, say)
            if out is not None:
                _make(out, output is None)
            for remark in dict.fromkeys((*checked.warnings, *job_here.layout.notes)):
                say(remark)
            where = f"; output in {out}" if out else ""
            say(f"{job.name}: {counted(len(job_here.tasks), 'task runs', 'tasks run')} here{where}")
            ended = _followed(local_job, lines is OutputFormat.json)
    if not ended.over:
        say(f"the program that read the logs has ended, and tfctl has ended {job.name} too")
        return Exit.NOT_ENDED
    return _report(ended, local_job, runtimes, job, jobfile, out)


def _inventory(jobfile: Path, job: JobFile) -> Inventory | None:
    """Return the job's inventory, or None if there is none or it cannot be read."""
    from tfctl.cli.which import find_inventory

    with suppress(TfctlError):
        return find_inventory(None, jobfile, job.inventory)
    return None


def _followed(job: LocalJob, as_json: bool) -> JobState:
    """Run a job to its end and print its logs. Return its state, which is not over if nobody reads them any more."""
    from tfctl.cli.lines import Printer

    try:
        return job.run(Printer(job.state, as_json=as_json))
    except BrokenPipeError:
        return job.state


def _report(
    ended: JobState, local_job: LocalJob, runtimes: Runtimes, job: JobFile, jobfile: Path, out: Path | None
) -> int:
    """Print how the job ended, as `tfctl status` does, and what to do next. Return the exit code."""
    from tfctl.cli.tables import job_text
    from tfctl.cli.wait import exit_code, sentence
    from tfctl.local.advice import remedy

    with suppress(OSError):  # stderr is closed
        typer.echo(job_text(ended).text, err=True)
    for module, tasks in local_job.missing_modules.items():
        advice = remedy(module, runtimes[tasks[0].role], jobfile, job.requirements)
        say(Lines(f"{listed([*map(str, tasks)])} cannot import {module}", f"  {advice}"))
    say(sentence(ended))
    again = (
        f"on your own machines: tfctl start {jobfile}"
        if ended.state == "succeeded"
        else f"to try again: tfctl run {jobfile}"
    )
    say(f"output in {out}; {again}" if out else again)
    return exit_code(ended)


def _make(folder: Path, default: bool) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if default:
            (folder.parent / ".gitignore").write_text("*\n")  # else the next start would pack the output
    except OSError as error:
        raise BadFile(
            f"{folder}: cannot be created: {error.strerror}", "name another directory with --output"
        ) from None
