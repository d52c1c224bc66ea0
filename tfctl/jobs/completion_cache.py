"""Remember which jobs, tasks and hosts there are, for the completion of command lines.

Every command that asks the hosts notes their answers. The file may be deleted at any time. Importing this is cheap.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tfctl import files

#: The most that is kept: the file is read whenever a key is pressed.
_JOBS, _HOSTS = 100, 1000


@dataclass(frozen=True)
class CompletionNames:
    """``jobs``: by name, the last started first, the roles with their numbers of tasks. ``age``: seconds since the
    hosts were asked, or None if they never were."""

    jobs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    age: float | None = None


def load() -> CompletionNames:
    """Return what is known; nothing if the file cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        found = json.loads(_file().read_text())
        jobs = {
            str(job): {str(role): int(count) for role, count in roles.items()} for job, roles in found["jobs"].items()
        }
        return CompletionNames(jobs, tuple(map(str, found["hosts"])), _age())
    return CompletionNames()


def note(jobs: Mapping[str, Iterable[str] | None], hosts: Iterable[str], everything: bool) -> None:
    """Note jobs, with the role of each task, and hosts. ``everything``: there are no others.

    The roles of a job that has None stay as they are known.
    """
    before = load()
    counted: dict[str, Mapping[str, int]] = {
        job: before.jobs.get(job, {}) if roles is None else _counts(roles) for job, roles in jobs.items()
    }
    names = tuple(hosts)
    if not everything:
        counted = {**counted, **{job: roles for job, roles in before.jobs.items() if job not in counted}}
        names = tuple(dict.fromkeys([*before.hosts, *names]))
    if (counted, names) != (before.jobs, before.hosts) or before.age is None or before.age > 1.0:
        with suppress(OSError):
            _write(counted, names)


def mark_as_refreshing() -> bool:
    """Pretend that the hosts have just been asked: somebody is asking them. Return whether that could be noted."""
    with suppress(OSError):
        if load().age is None:  # the file is missing or damaged
            _write({}, ())
        else:
            os.utime(_file())
        return _age() < 1.0
    return False


def _age() -> float:
    """Return how long ago (s) the file was written or touched. Raises OSError."""
    return max(0.0, time.time() - _file().stat().st_mtime)


def _counts(roles: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for role in roles:
        found[role] = found.get(role, 0) + 1
    return found


def _write(jobs: Mapping[str, Mapping[str, int]], hosts: tuple[str, ...]) -> None:
    """Replace the file. Raises OSError."""
    kept = {"jobs": dict(list(jobs.items())[:_JOBS]), "hosts": hosts[:_HOSTS]}
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    files.replace(file, json.dumps(kept))


def _file() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("tfctl") / "completion" / "known.json"
