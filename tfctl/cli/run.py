"""tfctl run --local: run a job's tasks as processes on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tfctl.cli.common import EnvOption, JobFileArgument, JobFileOption, OutputFormat, named, say
from tfctl.errors import BadFile, Exit, UsageError
from tfctl.wording import Lines, counted


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl run job.yaml --local")(run)


def run(
    jobfile: JobFileArgument = None,
    job_option: JobFileOption = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Required: run the tasks on this machine. `tfctl start` runs them on hosts."),
    ] = False,
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
    """Run every task of a job on this machine. Uses the active Python, to write and debug the script.

    Needs no ssh, systemd, root or inventory. Prints the logs; Ctrl-C ends all tasks. Exit code: 0 the job succeeded,
    100 it failed, 101 the program that read the logs exited first, 130 Ctrl-C.
    """
    from platformdirs import user_cache_path

    from tfctl.cli.lines import Printer
    from tfctl.cli.wait import exit_code, sentence
    from tfctl.jobs import check, code
    from tfctl.local.environment import runtime_library
    from tfctl.local.place import place
    from tfctl.local.run import LocalJob
    from tfctl.model import load, variables

    jobfile = named(jobfile, job_option, "job file")
    if not local:
        raise UsageError(
            "`tfctl run` needs --local",
            Lines(f"on this machine: tfctl run {jobfile} --local", f"on the hosts: tfctl start {jobfile}"),
        )
    given = variables.external(env or (), os.environ).given
    job = load.load(jobfile)
    out = (output or Path(code.LOCAL_OUTPUT, job.name)).expanduser().absolute()
    ports = user_cache_path("tfctl") / "local-ports"
    with (
        place(job, jobfile, out, os.environ, ports, given) as job_here,
        runtime_library() as library,
    ):
        checked = check.check(job_here.layout, None, code.names(job.code.path))
        checked.require()
        local_job = LocalJob(job_here, os.environ, library, say)
        _make(out, output is None)
        for remark in checked.warnings:
            say(remark)
        say(f"{job.name}: {counted(len(job_here.tasks), 'task runs', 'tasks run')} here; output in {out}")
        try:
            ended = local_job.run(Printer(local_job.state, as_json=lines is OutputFormat.json))
        except BrokenPipeError:
            ended = local_job.state
            if not ended.over:
                say(f"the program that read the logs has ended, and tfctl has ended {job.name} too")
                return Exit.NOT_ENDED
    say(sentence(ended))
    return exit_code(ended)


def _make(folder: Path, default: bool) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if default:
            (folder.parent / ".gitignore").write_text("*\n")  # else the next start would pack the output
    except OSError as error:
        raise BadFile(f"{folder}: cannot be created: {error.strerror}", "choose another with --output") from None
