"""Who is the cause of what is wrong with a job, and what to do: what `why` and `status` show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from tfctl.node import causes, names
from tfctl.wording import plain


class CulpritObject(TypedDict):
    """Who is the cause. ``task``: its name, such as worker/3, or null for a host alone. ``host``: its host.

    ``kind``: the kind of cause, in words. ``sentence``: what happened. ``remedy``: what to do.
    """

    task: str | None
    host: str
    kind: str
    sentence: str
    remedy: str


@dataclass(frozen=True)
class Culprit:
    """``task``: its name, or "" if it is about a host. ``sentence``: the first line. ``remedy``: the second one."""

    task: str
    host: str
    kind: str
    sentence: str
    remedy: str

    @classmethod
    def of(cls, found: causes.Culprit) -> Culprit:
        """Return the task that has ended first."""
        return cls(names.task(*found.task.name), found.task.host, found.kind, found.sentence, found.remedy)

    def as_object(self) -> CulpritObject:
        return {
            "task": self.task or None,
            "host": self.host,
            "kind": self.kind,
            "sentence": plain(self.sentence),
            "remedy": plain(self.remedy),
        }
