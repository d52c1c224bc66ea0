"""What the figures of runs point to: a straggler, the input pipeline or the network, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from tfctl.report.figures import ComparedRun, Report, RunFigures, TaskFigures, spread
from tfctl.wording import counted

#: Workers of one run that differ by more than this part of their mean are worth a look.
SPREAD = 0.2
#: Below this efficiency, devices are wasted: published results in float32 reach 0.88 to 0.94 (docs/measuring.md).
EFFICIENCY = 0.7
#: Steps that wait longer for input than this part of their time, and than this many seconds each, are slowed down.
INPUT_WAIT, INPUT_WAIT_S = 0.1, 0.002


@dataclass(frozen=True)
class Finding:
    """``why``: the figures that it follows from. ``check``: what to do next."""

    cause: Literal["straggler", "input pipeline", "network"]
    run: str
    why: str
    check: str


def findings(report: Report) -> tuple[Finding, ...]:
    """Return the findings of all runs, in the order of the report."""
    return tuple(finding for compared in report.runs for finding in _of_run(compared, report))


def _of_run(compared: ComparedRun, report: Report) -> Iterator[Finding]:
    waiting = [task for task in compared.run.computing if _waits(task)]
    if waiting:
        yield _input(compared.run, waiting)
    elif found := _straggler(compared.run):
        yield found
    if not waiting and (found := _network(compared, report)):
        yield found


def _waits(task: TaskFigures) -> bool:
    """Return whether the task waits for its input for a good part of the time."""
    wait, rate = task.input_wait, task.steps_per_second
    return bool(wait and rate and wait > INPUT_WAIT and wait / rate > INPUT_WAIT_S)


def _input(run: RunFigures, waiting: list[TaskFigures]) -> Finding:
    worst = max(waiting, key=lambda task: task.input_wait or 0.0)
    measured = [task for task in run.computing if task.input_wait is not None]
    part = f"{worst} on {worst.host} waits {worst.input_wait:.0%} of the time for its next batch"
    if len(waiting) < len(measured) and run.synchronous:
        part += f", and {counted(len(measured) - len(waiting), 'other task does', 'other tasks do')} not"
    elif len(waiting) > 1:
        mean = fmean(task.input_wait or 0.0 for task in waiting)
        part = f"{counted(len(waiting), 'task')} wait {mean:.0%} of the time for their next batches"
    return Finding(
        "input pipeline",
        run.name,
        part,
        "read in parallel (interleave, map with num_parallel_calls, prefetch), and look at the storage: "
        "iostat -x 1 and nfsiostat on the host",
    )


def _straggler(run: RunFigures) -> Finding | None:
    """Compare rates or, without them, times. In a synchronous run, all tasks have the rate of the slowest."""
    rates = [task for task in run.computing if task.examples_per_second]
    if len(rates) == len(run.computing):
        slowest = min(rates, key=lambda task: task.examples_per_second or 0.0, default=None)
        values = [task.examples_per_second for task in rates]
        unit, middle = "examples/s", median(value for value in values if value) if values else 0.0
        own = slowest.examples_per_second if slowest else None
    else:
        timed = [task for task in run.computing if task.seconds]
        slowest = max(timed, key=lambda task: task.seconds or 0.0, default=None)
        values = [task.seconds for task in timed]
        unit, middle = "s", median(value for value in values if value) if values else 0.0
        own = slowest.seconds if slowest else None
    found = spread(values)
    if slowest is None or own is None or found is None or found.spread <= SPREAD:
        return None
    # One fast task makes a spread as well, but no straggler.
    slower = own / middle if unit == "s" else middle / own
    if slower <= 1 + SPREAD / 2:
        return None
    return Finding(
        "straggler",
        run.name,
        f"{slowest} on {slowest.host} has {own:,.0f} {unit}, half of the tasks have {middle:,.0f} {unit} or better; "
        f"the spread is {found.spread:.0%}",
        f"tfctl nodes shows load, clock and temperature of {slowest.host}; tfctl verify compares the hosts",
    )


def _network(compared: ComparedRun, report: Report) -> Finding | None:
    """Return a finding if devices are wasted only where several hosts take part."""
    run, efficiency = compared.run, compared.efficiency
    if efficiency is None or efficiency >= EFFICIENCY or run.hosts < 2:
        return None
    # A run on one host with as many devices as a host has here shows what is lost without a network.
    here = run.devices_per_host
    alone = [each for each in report.runs if each.run.hosts == 1 and each.efficiency is not None]
    like = [each for each in alone if each.run.devices >= here]
    best = like[0] if like else alone[-1] if alone else None
    if best is None or best.efficiency is None or efficiency > 0.9 * best.efficiency:
        return None
    on_one, check = f"{best.efficiency:.0%} on one", ""
    if not like:
        on_one += f" with {counted(best.run.devices, 'device')}, so it is not known what is lost within a host"
        check = f"run one host with {counted(here, 'device')}; "
    measured = [task for task in run.computing if task.input_wait is not None]
    rest = (
        "the tasks do not wait for input"
        if measured
        else "it is unknown whether the tasks wait for input, so shared storage can also be the cause"
    )
    return Finding(
        "network",
        run.name,
        f"the efficiency is {efficiency:.0%} on {run.hosts} hosts, {on_one}; {rest}",
        f"{check}measure the network between the hosts with tfctl verify; use the fast interface (tfctl_address), "
        "or larger batches per device",
    )
