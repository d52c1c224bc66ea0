"""Durations and points in time on the command line."""

from __future__ import annotations

import re
import time
from datetime import datetime

from tfctl.errors import UsageError


def limit(timeout: str | None, waits: bool) -> float | None:
    """Return ``--timeout`` in seconds; 0 looks once. Raise UsageError (2), also if the command never waits."""
    if timeout is not None and not waits:
        raise UsageError(
            "--timeout needs an option that waits", "add --wait or --follow; `tfctl start` also has --queue"
        )
    return 0.0 if timeout in ("0", "0s") else seconds(timeout)


def seconds(word: str | None, option: str = "--timeout") -> float | None:
    """Parse a duration from the command line. Raise UsageError (2)."""
    from tfctl.model.text import seconds as parse

    try:
        return None if word is None else parse(int(word) if word.isdecimal() else word)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def moment(word: str | None, option: str) -> float | None:
    """Parse ``10m`` (ago), or a time such as 2026-11-22T13:00, local unless it has an offset. Raise UsageError."""
    if word is None:
        return None
    if re.fullmatch(r"\d[\ddhms]*", word):
        return time.time() - (seconds(word, option) or 0.0)
    try:
        return datetime.fromisoformat(word).timestamp()
    except ValueError:
        raise UsageError(
            f"{option}: {word!r} is neither a duration such as 10m nor a time such as 2026-11-22T13:00"
        ) from None
