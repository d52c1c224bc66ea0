"""The task whose failure explains that of the others, as an object of JSON."""

from __future__ import annotations

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


def culprit_object(found: causes.Culprit) -> CulpritObject:
    return {
        "task": names.task(*found.task.name),
        "host": found.task.host,
        "kind": found.kind,
        "sentence": plain(found.sentence),
        "remedy": plain(found.remedy),
    }
