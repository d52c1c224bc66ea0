"""Remember the last start from this machine, as a default for later commands. The hosts hold the real state."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path


def inventory() -> Path | None:
    """Return the inventory of the last start; None if it no longer exists."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        path = Path(json.loads(_file().read_text())["inventory"])
        return path if path.exists() else None
    return None


def remember(inventory: str) -> None:
    """Record the inventory of a start."""
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        _file().write_text(json.dumps({"inventory": inventory}) + "\n")


def _file() -> Path:
    from platformdirs import user_state_path

    return user_state_path("tfctl") / "last.json"
