"""What a task's unit may say. Its text comes from the client; systemd, which obeys it, is root.

Nothing is cleaned or repaired: a unit whose every line is one of these, in this form, is taken, another is not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from . import names

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SPAN = r"[0-9]{1,9}(ms|s|min|h|d)?"
#: A word in double quotes; `%` doubled, so that no specifier is left (systemd.syntax(7)).
_WORD = r'"(?:[^"\\%]|\\.|%%)*"'
_OPTIONAL = {
    "Unit": {"StartLimitIntervalSec": rf"infinity|{_SPAN}", "StartLimitBurst": r"[0-9]{1,9}"},
    "Service": {
        "UnsetEnvironment": rf"{_NAME}( {_NAME})*",
        "RestartSec": _SPAN,
        "RestartForceExitStatus": r"[0-9]{1,3}( [0-9]{1,3})*",
        "RestartPreventExitStatus": "SIGTERM",
        "RuntimeMaxSec": rf"infinity|{_SPAN}",
    },
    "X-Tfctl": {},
}


class NotAllowed(Exception):
    """A unit's text is not what tfctl renders; says which line."""


def check(
    text: str, *, job: str, attempt: int, run: str, role: str, index: int, output: str,
    ports: Sequence[int] = (), gpus: Sequence[str] = (),
) -> None:  # fmt: skip
    """Take the unit of this task, or raise NotAllowed."""
    required = _required(job, attempt, run, role, index, output, ports, gpus)
    seen: set[tuple[str, str]] = set()
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if any(ord(char) < 32 or 127 <= ord(char) < 160 or ord(char) in (0x2028, 0x2029) for char in line):
            raise NotAllowed(f"line {number} holds a control character")
        if line.startswith("["):
            section = line[1:-1]
            if line not in ("[Unit]", "[Service]", "[X-Tfctl]") or (section, "") in seen:
                raise NotAllowed(f"line {number}: {line[:60]} may not stand here")
            seen.add((section, ""))
        elif line:
            key, _, value = line.partition("=")
            form = {**_OPTIONAL.get(section, {}), **required.get(section, {})}.get(key)
            if form is None or (section, key) in seen:
                raise NotAllowed(f"line {number}: {key[:60]} may not stand here")
            if value.endswith("\\") or not re.fullmatch(form, value):
                raise NotAllowed(f"line {number}: {key} may not be {value[:200]!r}")
            seen.add((section, key))
    missing = [key for name, keys in required.items() for key in keys if (name, key) not in seen]
    if missing:
        raise NotAllowed(f"{', '.join(missing)} is missing")


def facts(text: str) -> dict[str, str]:
    """What a unit that `check` took says of itself: TFCTL_RUN as ``run``, Ports and Gpus as ``ports`` and ``gpus``."""
    found = {}
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if key == "LogExtraFields":
            found["run"] = value.partition("=")[2]
        elif key in ("Ports", "Gpus"):
            found[key.lower()] = value
    return found


def renewed(text: str, *, job: str, attempt: int, run: str, role: str, index: int, output: str) -> str:
    """The unit of this task for another attempt: the lines that name one say that one."""
    lines = {"Type": "exec", **_of_attempt(job, attempt, run, role, index, output)}
    parts = (line.partition("=") for line in text.split("\n"))
    return "\n".join(f"{key}={lines[key]}" if key in lines else f"{key}{sign}{value}" for key, sign, value in parts)


def program(text: str) -> str:
    """The first word that the unit executes, or nothing."""
    for line in text.split("\n"):
        if line.startswith("ExecStart="):
            return next(iter(shlex.split(line)[1:]), "").replace("%%", "%")
    return ""


def _of_attempt(job: str, attempt: int, run: str, role: str, index: int, output: str) -> dict[str, str]:
    """The lines that differ from attempt to attempt, as they stand."""
    return {
        "WorkingDirectory": names.code_dir(job, attempt),
        "ExecStopPost": f"{names.END_PROGRAM} {names.task_dir(job, attempt, role, index)}",
        "ReadWritePaths": " ".join(f'"{path}"' for path in names.writable(job, attempt, output)),
        "LogExtraFields": f"TFCTL_RUN={run}",
    }


def _required(
    job: str, attempt: int, run: str, role: str, index: int, output: str, ports: Sequence[int], gpus: Sequence[str]
) -> dict[str, dict[str, str]]:
    """The pattern of each line that must stand."""
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
