"""tfctl init: write the files with which a new job begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli.common import OutputFormat, OutputOption, say

if TYPE_CHECKING:
    from tfctl.cli.objects import WrittenFilesObject


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl init digits --strategy parameter_server")(init)


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write them; created if needed.")] = Path(),
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            "-s",
            help="How TensorFlow distributes the job: mirrored, multi_worker_mirrored, parameter_server, tf1_ps, "
            "estimator, horovod or custom. On several hosts, only horovod and custom work without a directory that "
            "the hosts share.",
        ),
    ] = "mirrored",
    here: Annotated[
        bool, typer.Option("--here", help="Write an inventory whose host is this machine, without ssh.")
    ] = False,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Write a job file, a script and an inventory to start from. Existing files are not overwritten.

    The files are job.yaml, with comments; train.py, which trains a small model; and hosts.ini, to enter your hosts.
    With --here, hosts.ini has this machine as its host.
    """
    from tfctl.cli.text import print_json
    from tfctl.jobs.new_job import known_strategy, write
    from tfctl.local.runtimes import stack_here

    known = known_strategy(strategy)
    written = write(folder.expanduser(), known, stack_here(known), here)
    if output is OutputFormat.json:
        found: WrittenFilesObject = {"files": [str(path) for path in written]}
        print_json(found)
    else:
        typer.echo("\n".join(map(str, written)))
    inventory = folder / "hosts.ini"
    say(f"to run the job on this machine: tfctl run {folder / 'job.yaml'}")
    if here:
        say(f"to run it as a service of this machine: tfctl provision {inventory}; tfctl start {folder / 'job.yaml'}")
    else:
        say(f"to run it on your own machines, enter them in {inventory}, then: tfctl preflight {inventory}")
