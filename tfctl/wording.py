"""Wording shared by several commands: counts, dry runs, and the safe display of text from hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: C0 and C1 controls, except tab and newline: text from a host must not move the cursor or retitle the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


#: The remedy for ports and GPUs that other jobs hold.
QUEUE = "wait for other jobs: tfctl start JOBFILE --queue"


def plain(text: str) -> str:
    """Return text from a host with terminal control characters replaced by `?`."""
    return _CONTROL.sub("?", text)


def with_remedy(message: str, remedy: str) -> str:
    """Return a message and, below it, each line of its remedy behind an arrow."""
    first, *rest = message.splitlines() or [""]
    return "\n".join([first, *(f"  {line}" for line in rest), *(f"  → {line}" for line in remedy.splitlines())])


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: ``1 host``, ``3 hosts``; ``1 task runs``, ``3 tasks run``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def abbreviated(names: Sequence[str]) -> str:
    """Return up to five names as ``listed`` does, or three and how many more there are: ``a, b, c and 5 others``."""
    rest = len(names) - 3
    return listed([*names[:3], counted(rest, "other")] if rest > 2 else names)


def running(tasks: int, hosts: int) -> str:
    """Return, for example, ``6 tasks run on 3 hosts``."""
    return f"{counted(tasks, 'task runs', 'tasks run')} on {counted(hosts, 'host')}"


def outline(head: str, output: str, hosts: Iterable[str], tasks: Sequence[tuple[str, str]]) -> str:
    """Return a dry run's text: ``head`` with counts, then each host with its tasks. ``tasks`` holds (host, line)."""
    names = list(hosts)
    lines = [f"{head}, {counted(len(tasks), 'task')} on {counted(len(names), 'host')}"]
    for name in names:
        lines += [f"{name}: output {output}", *(f"  {line}" for host, line in tasks if host == name)]
    return "\n".join(lines)


def devices(gpus: Sequence[str]) -> str:
    """Return ``, GPUs GPU-1 GPU-2``, or an empty string."""
    return f", GPUs {' '.join(gpus)}" if gpus else ""
