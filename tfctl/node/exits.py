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

    @property
    def meaning(self) -> str:
        """What the code says about the command, for the manual."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.OK: "done",
    Exit.FAILED: "failed on some host or on this machine",
    Exit.USAGE: "invalid command line",
    Exit.BAD_FILE: "invalid job file or inventory",
    Exit.UNREACHABLE: "a host does not answer, or cannot be trusted",
    Exit.BUSY: "busy: the job exists, a job runs on the host, or a port, a GPU or a directory is taken",
    Exit.UNDONE: "tasks had been started and were stopped again, because not all could be started",
    Exit.NOT_FOUND: "no such job, task, host or lab",
    Exit.PREFLIGHT: "a host does not meet the requirements",
    Exit.JOB_FAILED: "the job failed or was lost (only from commands that wait for a job)",
    Exit.NOT_ENDED: "the job did not end within `--timeout`, a host was silent for `--host-timeout`, or the program "
    "that read its logs has ended (only from commands that wait for a job)",
    Exit.JOB_STOPPED: "the job was stopped (only from commands that wait for a job)",
    Exit.INTERRUPTED: "interrupted by Ctrl-C, SIGTERM or SIGHUP",
}
