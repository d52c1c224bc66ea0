"""Remember what was started from which directory of this machine, as defaults for later commands.

The hosts hold the real state. The file may be deleted at any time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from tfctl import files
from tfctl.remote import inventory_sources

#: Directories, and runs of each, that are remembered.
_DIRECTORIES, _RUNS = 200, 50


class _Entry(TypedDict):
    """What was started from a directory: the last inventory, and the runs, the newest last."""

    inventory: str
    runs: list[str]


def inventory() -> tuple[Path, Path] | None:
    """Return the inventory last used from this directory or the nearest parent, and that directory.

    Skip those that no longer exist. None if there is none.
    """
    known, here = _load(), _here()
    for folder in (here, *here.parents) if here else ():
        if (entry := known.get(str(folder))) and inventory_sources.exists(path := Path(entry["inventory"])):
            return path, folder
    return None


def is_own(runs: Iterable[str]) -> bool:
    """Return whether this user has started one of these runs from this directory."""
    entry = _load().get(str(_here()))
    return entry is not None and not set(entry["runs"]).isdisjoint(runs)


def remember(inventory: str, run: str) -> None:
    """Record a start from this directory."""
    known, here = _load(), _here()
    if here is None:
        return
    before = known.pop(str(here), None)
    runs = [*(before["runs"] if before else []), run][-_RUNS:]
    known[str(here)] = {"inventory": inventory, "runs": runs}
    kept = dict(list(known.items())[-_DIRECTORIES:])
    with suppress(OSError):
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True)
        files.replace(file, json.dumps({"directories": kept}) + "\n")


def _load() -> dict[str, _Entry]:
    """Return what is remembered of each directory, the last used last. Skip what is not of that form."""
    found: dict[str, _Entry] = {}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        for folder, entry in json.loads(_file().read_text())["directories"].items():
            found[folder] = {"inventory": str(entry["inventory"]), "runs": [str(run) for run in entry["runs"]]}
    return found


def _here() -> Path | None:
    """Return the current directory; None if it has been deleted."""
    with suppress(OSError):
        return Path.cwd()
    return None


def _file() -> Path:
    from platformdirs import user_state_path

    return user_state_path("tfctl") / "last.json"
