"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 host``, ``3 hosts``; ``1 task runs``, ``3 tasks run``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def running(tasks: int, hosts: int) -> str:
    """``6 tasks run on 3 hosts``"""
    return f"{counted(tasks, 'task runs', 'tasks run')} on {counted(hosts, 'host')}"
