"""The results of `scripts/bench scale` as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

from scripts.bench_scale.following import Followed
from scripts.bench_scale.measure import Usage
from scripts.bench_scale.rig import Traffic


class CommandResult(NamedTuple):
    """What a command cost on so many hosts. ``error``: why it was not measured. ``traffic``: that of one run."""

    command: str
    hosts: int
    usage: Usage | None = None
    traffic: Traffic | None = None
    error: str = ""


class FollowResult(NamedTuple):
    """What following the output of so many hosts cost. ``wanted``: lines a second that the hosts print."""

    hosts: int
    wanted: float
    followed: Followed | None = None
    traffic: Traffic | None = None
    error: str = ""


class Results(NamedTuple):
    """``cores``: of the machine. ``missing``: why peers are missing."""

    cores: int
    commands: list[CommandResult]
    follows: list[FollowResult]
    missing: dict[str, str]


class CommandObject(TypedDict):
    """Times are in seconds, sizes in bytes."""

    command: str
    hosts: int
    cpu: float | None
    wall: float | None
    memory: int | None
    threads: int | None
    sent: int | None
    received: int | None
    server_cpu: float | None
    error: str


class FollowObject(TypedDict):
    """As Followed. ``late``: how late (s) the servers were at most, and ``server_cpu`` their CPU seconds."""

    hosts: int
    wanted: float
    figures: dict[str, float] | None
    late: float | None
    server_cpu: float | None
    error: str


class ResultsObject(TypedDict):
    cores: int
    commands: list[CommandObject]
    follows: list[FollowObject]
    missing: dict[str, str]


_COMMANDS = ("COMMAND", "HOSTS", "CPU s", "WALL s", "CPU/HOST ms", "MEMORY MB", "THREADS", "OUT/HOST kB", "IN/HOST kB")
_FOLLOWS = (
    "LOGS -F", "LINES/S", "OF", "FIRST s", "ALL s", "CPU %", "CPU/LINE us", "LAG s", "LAG P99 s", "LOST", "SILENT",
    "MEMORY MB", "THREADS",
)  # fmt: skip


def text(found: Results) -> str:
    """Return the tables, with the reason below each that says why a row has no figures."""
    parts = [f"measured on {found.cores} cores"]
    if found.commands:
        rows = [_command_row(one) for one in found.commands]
        parts.append(aligned([_COMMANDS, *rows]))
    if found.follows:
        parts.append(aligned([_FOLLOWS, *[_follow_row(one) for one in found.follows]]))
    notes = [f"{one.command}, {one.hosts} hosts: not measured: {one.error}" for one in found.commands if one.error]
    notes += [f"logs -f, {one.hosts} hosts: not measured: {one.error}" for one in found.follows if one.error]
    notes += [f"{peer}: not measured: {reason}" for peer, reason in found.missing.items()]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def as_object(found: Results) -> ResultsObject:
    """Return the results for JSON."""
    return {
        "cores": found.cores,
        "commands": [_command_object(one) for one in found.commands],
        "follows": [_follow_object(one) for one in found.follows],
        "missing": found.missing,
    }


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return the rows with columns of equal width: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        name, *numbers = zip(row, widths, strict=True)
        lines.append("  ".join([name[0].ljust(name[1]), *(cell.rjust(width) for cell, width in numbers)]))
    return "\n".join(lines)


def _command_row(one: CommandResult) -> tuple[str, ...]:
    if one.usage is None or one.traffic is None:
        return (one.command, str(one.hosts), *["-"] * (len(_COMMANDS) - 2))
    usage, traffic = one.usage, one.traffic
    return (
        one.command,
        str(one.hosts),
        f"{usage.cpu:.2f}",
        f"{usage.wall:.2f}",
        f"{usage.cpu / one.hosts * 1000:.1f}",
        f"{usage.memory / 1e6:.0f}",
        str(usage.threads),
        f"{traffic.received / one.hosts / 1000:.1f}",
        f"{traffic.sent / one.hosts / 1000:.1f}",
    )


def _follow_row(one: FollowResult) -> tuple[str, ...]:
    if one.followed is None:
        return (f"{one.hosts} hosts", "-", f"{one.wanted:.0f}", *["-"] * (len(_FOLLOWS) - 3))
    figures = one.followed
    return (
        f"{one.hosts} hosts",
        f"{figures.rate:.0f}",
        f"{one.wanted:.0f}",
        f"{figures.first:.2f}",
        f"{figures.all_hosts:.2f}",
        f"{figures.share * 100:.0f}",
        f"{figures.per_line * 1e6:.0f}",
        f"{figures.lag:.2f}",
        f"{figures.worst_lag:.2f}",
        str(figures.lost),
        str(figures.silent),
        f"{figures.memory / 1e6:.0f}",
        str(figures.threads),
    )


def _command_object(one: CommandResult) -> CommandObject:
    usage, traffic = one.usage, one.traffic
    return {
        "command": one.command,
        "hosts": one.hosts,
        "cpu": usage and usage.cpu,
        "wall": usage and usage.wall,
        "memory": usage and usage.memory,
        "threads": usage and usage.threads,
        "sent": traffic and traffic.received,
        "received": traffic and traffic.sent,
        "server_cpu": traffic and traffic.cpu,
        "error": one.error,
    }


def _follow_object(one: FollowResult) -> FollowObject:
    return {
        "hosts": one.hosts,
        "wanted": one.wanted,
        "figures": one.followed and one.followed._asdict(),
        "late": one.traffic and one.traffic.late,
        "server_cpu": one.traffic and one.traffic.cpu,
        "error": one.error,
    }
