"""Validation of a task's unit file. Its text comes from the client, and systemd acts on it as root.

A unit is accepted if every line is allowed and in its exact form, and rejected otherwise. Nothing is repaired.

The lines of the drop-in 10-tfctl.conf, which no job can change, are also in each unit: the unit restricts its task
without the drop-in too, whoever starts it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from . import names

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SPAN = r"[0-9]{1,9}(ms|s|min|h|d)?"
#: A word in double quotes as `word` writes it, with `%` doubled so that it contains no specifier (systemd.syntax(7)).
#: systemd expands specifiers after it has replaced escapes, so only those of control characters are allowed.
_WORD = r'"(?:[^"\\%]|\\["\\nt]|\\x(?:0[1-9a-f]|1[0-9a-f]|7f)|%%)*"'
_CONTROL = re.compile(r"[\x01-\x1f\x7f]")
_STATUS = r"([0-9]{1,3}|SIG[A-Z]{2,4})"
_OPTIONAL = {
    "Unit": {"StartLimitIntervalSec": rf"infinity|{_SPAN}", "StartLimitBurst": r"[0-9]{1,9}"},
    "Service": {
        "UnsetEnvironment": rf"{_NAME}( {_NAME})*",
        "RestartSec": _SPAN,
        "RestartForceExitStatus": rf"{_STATUS}( {_STATUS})*",
        # Earlier versions rendered the deadline as RuntimeMaxSec=, which every restart renews.
        "RestartPreventExitStatus": "0|SIGTERM|0 SIGTERM",
        "RuntimeMaxSec": rf"infinity|{_SPAN}",
        "KillMode": "mixed|control-group",
        "MemoryMax": r"[1-9][0-9]{0,17}[KMGT]?",
        "MemorySwapMax": "0",
        "CPUQuota": r"[1-9][0-9]{0,6}%",
    },
    "X-Tfctl": {"Deadline": r"[1-9][0-9]{0,8}"},
}


class NotAllowed(Exception):
    """A unit's text is not one that tfctl renders. The message names the line."""


def check(
    text: str, *, job: str, attempt: int, run: str, role: str, index: int, output: str,
    ports: Sequence[int] = (), gpus: Sequence[str] = (),
) -> None:  # fmt: skip
    """Raise NotAllowed unless the text is a valid unit for this task."""
    required = _required(job, attempt, run, role, index, output, ports, gpus)
    # Optional, because the next attempt may be made from a unit that an earlier version rendered without them.
    notes = {key: re.escape(value) for key, value in _notes(job, attempt, role, index).items()}
    allowed = {**_OPTIONAL, "Service": {**_OPTIONAL["Service"], **notes}}
    seen: set[tuple[str, str]] = set()
    shared: dict[str, list[str]] = {name: [] for name in restrictions()}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if any(ord(char) < 32 or 127 <= ord(char) < 160 or ord(char) in (0x2028, 0x2029) for char in line):
            raise NotAllowed(f"line {number} holds a control character")
        if line.startswith("["):
            section = line[1:-1]
            if line not in ("[Unit]", "[Service]", "[X-Tfctl]") or (section, "") in seen:
                raise NotAllowed(f"line {number}: {line[:60]} is not allowed here")
            seen.add((section, ""))
        elif line:
            key, _, value = line.partition("=")
            if key in _keys(section):
                shared[section].append(line)
                continue
            form = {**allowed.get(section, {}), **required.get(section, {})}.get(key)
            if form is None or (section, key) in seen:
                raise NotAllowed(f"line {number}: {key[:60]} is not allowed here")
            if value.endswith("\\") or not re.fullmatch(form, value):
                raise NotAllowed(f"line {number}: {key} may not be {value[:200]!r}")
            seen.add((section, key))
    missing = [key for name, keys in required.items() for key in keys if (name, key) not in seen]
    if missing:
        raise NotAllowed(f"{', '.join(missing)} is missing")
    for name, lines in restrictions().items():
        if (*shared[name],) != lines:
            found = shared[name]
            other = next((line for line in (*lines, *found) if line not in lines or line not in found), "their order")
            raise NotAllowed(f"its restrictions are not those of {Path(names.DROP_IN).name}: {other[:200]}")


@functools.cache
def restrictions() -> Mapping[str, tuple[str, ...]]:
    """Return the lines of the drop-in of all tasks by section. They are also lines of each unit, in the same order."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in Path(__file__).with_name(Path(names.DROP_IN).name).read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return {section: tuple(each) for section, each in found.items()}


@functools.cache
def _keys(section: str) -> frozenset[str]:
    return frozenset(line.partition("=")[0] for line in restrictions().get(section, ()))


class UnitFacts(NamedTuple):
    """What a unit file says of its task beside what its name says. ``deadline``: in seconds, or None."""

    run: str
    ports: tuple[int, ...]
    gpus: tuple[str, ...]
    deadline: int | None = None


def facts(text: str) -> UnitFacts:
    """Return TFCTL_RUN, Ports, Gpus and Deadline of a unit that `check` accepted."""
    found = {}
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        found[key] = value
    ports = tuple(int(port) for port in found.get("Ports", "").split() if port.isdigit())
    run = found.get("LogExtraFields", "").partition("=")[2]
    deadline = found.get("Deadline", "")
    return UnitFacts(run, ports, tuple(found.get("Gpus", "").split()), int(deadline) if deadline.isdigit() else None)


def renewed(text: str, *, job: str, attempt: int, run: str, role: str, index: int, output: str) -> str:
    """Return the unit's text for another attempt: replace the lines that depend on the attempt, and the restrictions,
    which an upgrade may have changed."""
    lines = {
        "Type": "exec",
        **_notes(job, attempt, role, index),
        **_of_attempt(job, attempt, run, role, index, output),
    }
    found: list[str] = []
    section = ""
    for line in text.split("\n"):
        key = line.partition("=")[0]
        if line.startswith("["):
            section = line[1:-1]
        if key in _keys(section):
            continue
        if not line:
            found += restrictions().get(section, ())
            section = ""
        found.append(f"{key}={lines[key]}" if key in lines else line)
    return "\n".join(found)


def installable(text: str, *, sees_execution: bool) -> str:
    """Return the text to install. ``sees_execution``: whether systemd may use Type=exec (tfctl.node.system)."""
    return text if sees_execution else text.replace("\nType=exec\n", "\nType=simple\n")


def as_rendered(text: str) -> str:
    """Return the text of an installed unit as it was before `installable`."""
    return text.replace("\nType=simple\n", "\nType=exec\n")


def word(text: str) -> str:
    """Quote a word of ExecStart=:, without specifiers (systemd.service(5)). Control characters become C escapes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", escaped) + '"'


def program(text: str) -> str:
    """Return the program that the unit executes, or ""."""
    import shlex  # only a start needs it

    for line in text.split("\n"):
        if line.startswith("ExecStart="):
            return next(iter(shlex.split(line)[1:]), "").replace("%%", "%")
    return ""


def _notes(job: str, attempt: int, role: str, index: int) -> dict[str, str]:
    """Return the lines that note when an invocation begins and when systemd is told to stop it.

    The dash makes systemd ignore that a note cannot be written, as on a full disk. It replaces %b by the boot ID.
    """
    directory = names.task_dir(job, attempt, role, index)
    return {
        "ExecStartPre": f"-{names.NOTE_PROGRAM} begin {directory} %b",
        "ExecStop": f"-{names.NOTE_PROGRAM} stop {directory}",
    }


def _of_attempt(job: str, attempt: int, run: str, role: str, index: int, output: str) -> dict[str, str]:
    """Return the lines that differ between attempts, with their exact values."""
    return {
        "WorkingDirectory": names.code_dir(job, attempt),
        "ExecStopPost": f"{names.END_PROGRAM} {names.task_dir(job, attempt, role, index)}",
        "ReadWritePaths": " ".join(f'"{path}"' for path in names.writable(job, attempt, output)),
        "LogExtraFields": f"TFCTL_RUN={run}",
    }


def _required(
    job: str, attempt: int, run: str, role: str, index: int, output: str, ports: Sequence[int], gpus: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the pattern of each required line."""
    own = _of_attempt(job, attempt, run, role, index, output)
    return {
        "Unit": {"Description": re.escape(f"tfctl {job} {names.task(role, index)}")},
        "Service": {
            "Type": "exec",
            "Slice": re.escape(names.job_slice(job)),
            "EnvironmentFile": re.escape(names.env_file(job, role, index)),
            "ExecStart": f":/usr/bin/env( {_WORD})+",
            "Restart": "no|on-failure",
            "TimeoutStopSec": _SPAN,
            "SyslogIdentifier": re.escape(names.task(role, index)),
            **{key: re.escape(value) for key, value in own.items()},
        },
        "X-Tfctl": {"Ports": re.escape(names.port_list(ports)), "Gpus": re.escape(" ".join(gpus))},
    }
