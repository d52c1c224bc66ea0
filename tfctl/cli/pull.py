"""tfctl pull: copy a job's output, logs, units and events to this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import tables, text
from tfctl.cli.common import InventoryOption, JobOption, OutputFormat, OutputOption, say, say_error
from tfctl.cli.live_line import LiveLine
from tfctl.cli.which import job_name, open_fleet
from tfctl.errors import NotFound, TfctlError, UsageError, first_of, of_hosts
from tfctl.wording import counted

if TYPE_CHECKING:
    from tfctl.cli.objects import EventsObject, PulledObject
    from tfctl.jobs.pull import PullProgress

#: How often (s) the line of the progress is written.
_EVERY_S = 0.2


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl pull digits-ps    tfctl pull digits-ps ./results")(pull)


def pull(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] [DIR]",
            show_default=False,
            help="A job's name or file (default: the running job, or the last one), then a directory "
            "(default: JOB-results). A directory alone needs a slash: ./results.",
        ),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Copy a job's output and logs to this machine.

    Also copies its units, TF_CONFIG and events. Files that are in the directory already are not copied again, so repeat
    the command to continue an interrupted pull.
    """
    from tfctl.jobs import events as job_events
    from tfctl.jobs import pull as job_pull
    from tfctl.jobs.destination import Destination

    job, folder = parse(words or [], job_option is not None)
    errors: list[TfctlError] = []
    with open_fleet(job, job_option, inventory) as (fleet, wanted):
        try:
            name = job_name(fleet, wanted)
            now, happened, silent = job_events.events(fleet, name)
        except NotFound as unknown:
            raise _about_directory(unknown, words or []) from None
        errors += of_hosts(silent, now.hosts)
        numbers = sorted({now.attempt, *(event.attempt for event in happened)})
        with Destination(folder or Path(f"{name}-results"), name) as destination, PullLine() as line:
            try:
                runs = {now.run}
                for attempt in job_pull.attempts(fleet, name, numbers):
                    runs.add(attempt.run)
                    job_pull.write_timings(attempt, destination, errors.append)
                    line.show(f"logs of attempt {attempt.attempt}")
                    try:
                        job_pull.pull_logs(fleet, attempt, destination, line.say, errors.append)
                    except NotFound as missing:  # its hosts are no longer in the inventory
                        errors.append(missing)
                what: EventsObject = {"job": name, "events": tables.events_json(happened)}
                for file, content in (("events.json", what), ("status.json", tables.job_json(now))):
                    destination.write(destination.named(file, now.run, runs), json.dumps(content, indent=2) + "\n")
                results = destination.named("output", now.run, runs)
                found = job_pull.pull_files(fleet, now, destination, results, line.take, errors.append)
            except KeyboardInterrupt:
                line.clear()
                say(f"{destination.path} is incomplete: run the same command again to continue")
                raise
            errors = list({error.message: error for error in errors}.values())
            if not errors:
                destination.clean()
    if output is OutputFormat.json:
        pulled: PulledObject = {
            "job": name,
            "directory": str(destination.path),
            "output": str(destination.path / results),
            "attempts": numbers,
            "files": found.files,
            "bytes": found.bytes,
            "kept": found.kept,
            "faults": [error.message for error in errors],
        }
        text.print_json(pulled)
    else:
        typer.echo(str(destination.path))
    if results != "output":
        say(f"{destination.path} has the results of other runs of {name} too: those of this one are in {results}")
    kept = f"; {counted(found.kept, 'was', 'were')} there already" if found.kept else ""
    say(f"{name}: {counted(found.files, 'file')} of output, {size(found.bytes)}{kept}")
    for error in errors:
        say_error(error)
    return first_of(error.exit for error in errors)


def parse(words: list[str], job_is_named: bool) -> tuple[str | None, Path | None]:
    """Return the job and the directory that the words name. Raise UsageError for more than one of each."""
    rest = list(words)
    job = rest.pop(0) if rest and not job_is_named and not (len(rest) == 1 and _is_directory(rest[0])) else None
    if len(rest) > 1:
        raise UsageError(f"{' '.join(words)!r} is more than a job and a directory", "tfctl pull [JOB] [DIR]")
    return job, Path(rest[0]) if rest else None


def size(number: int) -> str:
    """Return a number of bytes as ``12 kB``, ``3.4 MB`` or ``1.2 GB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number / 1000:.0f} kB" if number >= 1000 else f"{number} B"


def _is_directory(word: str) -> bool:
    return word in (".", "..") or ("/" in word and not word.endswith((".yaml", ".yml")))


def _about_directory(error: NotFound, words: list[str]) -> NotFound:
    """Add to the error that the only word may have been meant as a directory."""
    if len(words) != 1:
        return error
    return NotFound(error.message, f"{error.remedy}; for the directory {words[0]}, write ./{words[0]}")


class PullLine(LiveLine):
    """Shows how far the pull is."""

    def __init__(self) -> None:
        super().__init__()
        self._began = time.monotonic()
        self._shown = 0.0

    def take(self, progress: PullProgress) -> None:
        if progress.files == progress.all_files or time.monotonic() - self._shown >= _EVERY_S:
            self._shown = time.monotonic()
            rate = progress.bytes / max(0.1, time.monotonic() - self._began)
            self.show(
                f"{progress.files} of {counted(progress.all_files, 'file')}, "
                f"{size(progress.bytes)} of {size(progress.all_bytes)}, {size(int(rate))}/s"
            )
