"""A line at the bottom of the terminal that is rewritten while a command works."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Self

from tfctl.cli.common import say


class LiveLine:
    """Writes to stderr, if that is a terminal. A context manager that removes the line."""

    def __init__(self) -> None:
        self.visible = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, line: str) -> None:
        """Write this in place of what the line has."""
        if self.visible:
            # A line that the terminal wraps could not be removed.
            sys.stderr.write(f"\r\033[K{line[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()

    def say(self, message: str) -> None:
        """Write a message in place of the line."""
        self.clear()
        say(message)

    def clear(self) -> None:
        """Remove the line."""
        if self.visible:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
