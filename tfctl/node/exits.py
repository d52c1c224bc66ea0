"""The exit codes of every verb: one list for the client, the node part and whoever scripts them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. They are a public contract: scripts test them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    BAD_FILE = 3
    UNREACHABLE = 4
    BUSY = 5
    UNDONE = 6
    NOT_FOUND = 7
    PREFLIGHT = 8
    JOB_FAILED = 100
    NOT_ENDED = 101
    JOB_STOPPED = 103
    INTERRUPTED = 130
