"""The stdout of commands. Once nobody reads it any more (`tfctl wait -o json | true`), what they write is discarded,
and they go on to their exit code. Commands that only print, such as `logs`, end instead: see `require_reader`."""

from __future__ import annotations

import io
import os
import sys


class Stdout(io.TextIOWrapper):
    """``used``: something was written to it. ``unread``: nobody reads it any more."""

    used = False
    unread = False

    def write(self, text: str) -> int:
        self.used = True
        try:
            return super().write(text)
        except BrokenPipeError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._discard()

    def _discard(self) -> None:
        self.unread = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())


def install() -> None:
    """Replace sys.stdout. If it is closed (`>&-`), discard what is written; write `?` for what cannot be encoded."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding, by_line, at_once = sys.stdout.encoding, sys.stdout.line_buffering, sys.stdout.write_through
        sys.stdout = Stdout(sys.stdout.detach(), encoding, "replace", line_buffering=by_line, write_through=at_once)
        sys.__stdout__ = sys.stdout  # type: ignore[misc]  # shutil.get_terminal_size asks it for its descriptor


def require_reader() -> None:
    """Raise BrokenPipeError if nobody reads stdout any more."""
    if getattr(sys.stdout, "unread", False):
        raise BrokenPipeError
