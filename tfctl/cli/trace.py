"""tfctl trace: show what tasks do at this moment, by their Python stacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, JobOption, OutputFormat, OutputOption, say_error
from tfctl.cli.which import open_task
from tfctl.errors import first_of
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.cli.objects import TracedTaskObject, TraceObject
    from tfctl.jobs.state import JobState
    from tfctl.jobs.trace import Trace, TracedTask


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl trace    tfctl trace digits-ps worker 3")(trace)


def trace(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] [ROLE [INDEX]]",
            show_default=False,
            help="A job's name or file (default: the running job, or the last one), then the tasks to show whole "
            "stacks of (default: one line for each group of tasks that do the same).",
        ),
    ] = None,
    job_option: JobOption = None,
    inventory: InventoryOption = None,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Show what tasks do at this moment, by their Python stacks.

    Tasks that do the same share a line. The smallest groups are printed first. The tasks are not stopped meanwhile. The
    values of variables are not read. tfctl provision installs what is needed on the hosts.
    """
    from tfctl.jobs import trace as tracing
    from tfctl.jobs.state import select

    with open_task(words or [], job_option, inventory) as opened:
        state = opened.state
        tasks = state.tasks if opened.task is None else select(state, *opened.task)
        found = tracing.trace(opened.fleet, state, tasks)
    if output is OutputFormat.json:
        text.print_json(_json(state, found))
    else:
        whole = opened.task is not None
        typer.echo("\n".join(_whole(found) if whole else _folded(state, found)))
    for error in [*opened.errors, *found.errors]:
        say_error(error)
    return first_of(error.exit for error in [*opened.errors, *found.errors])


def _folded(state: JobState, found: Trace) -> Iterator[str]:
    """Yield a line for the job, and one for the tasks that do the same."""
    from tfctl.jobs.trace import folded, ranges

    yield f"{state.job}  attempt {state.attempt}  {text.state_word(state.state)}"
    for activity, tasks in folded(found.tasks):
        hosts = list(dict.fromkeys(each.task.host for each in tasks))
        place = f" on {hosts[0]}" if len(hosts) == 1 else ""
        yield plain(f"{ranges([each.task for each in tasks])}{place}: {activity}")


def _whole(found: Trace) -> Iterator[str]:
    """Yield the threads of each task with their frames, the innermost first."""
    for each in found.tasks:
        yield plain(f"{each.task} on {each.task.host}: {each.activity}")
        for thread in each.seen.threads if each.seen else ():
            yield plain(f"  thread {thread.name or 'without a name'}{'' if thread.active else ' (idle)'}")
            for frame in thread.frames:
                yield plain(f"    {frame.name} ({frame.file}:{frame.line})")


def _json(state: JobState, found: Trace) -> TraceObject:
    return {"job": state.job, "attempt": state.attempt, "tasks": [_task_json(each) for each in found.tasks]}


def _task_json(each: TracedTask) -> TracedTaskObject:
    seen = each.seen
    threads = seen.threads if seen else ()
    return {
        "role": each.task.role,
        "index": each.task.index,
        "host": each.task.host,
        "state": each.task.state,
        "process": seen.state if seen else "unknown",
        "cpu": seen.cpu if seen else None,
        "does": plain(each.activity.words),
        "where": plain(each.activity.where),
        "trouble": plain(seen.trouble) if seen else "",
        "threads": [
            {
                "name": None if thread.name is None else plain(thread.name),
                "active": thread.active,
                "frames": [
                    {"name": plain(one.name), "file": plain(one.file), "line": one.line} for one in thread.frames
                ],
            }
            for thread in threads
        ],
    }
