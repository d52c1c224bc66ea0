"""Numbers in sentences, and what verbs that begin a job say in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 host``, ``3 hosts``; ``1 task runs``, ``3 tasks run``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def running(tasks: int, hosts: int) -> str:
    """``6 tasks run on 3 hosts``"""
    return f"{counted(tasks, 'task runs', 'tasks run')} on {counted(hosts, 'host')}"


def outline(head: str, output: str, hosts: Iterable[str], tasks: Sequence[tuple[str, str]]) -> str:
    """A dry run: ``head`` and the numbers, then each host with its tasks; ``tasks`` are (host, line)."""
    names = list(hosts)
    lines = [f"{head}, {counted(len(tasks), 'task')} on {counted(len(names), 'host')}"]
    for name in names:
        lines += [f"{name}: output {output}", *(f"  {line}" for host, line in tasks if host == name)]
    return "\n".join(lines)


def devices(gpus: Sequence[str]) -> str:
    """``, GPUs GPU-1 GPU-2``, or nothing."""
    return f", GPUs {' '.join(gpus)}" if gpus else ""
