"""What can go wrong, and the exit code that says so.

    TfctlError                 1  failed on some host
    ├── UsageError             2  wrong words on the command line
    ├── BadFile                3  job file or inventory that cannot be used
    ├── Unreachable            4  a host that does not answer, or may not be trusted
    ├── Busy                   5  job exists, port or GPU taken
    ├── Undone                 6  units had been started and were undone
    ├── NotFound               7  no such job, task or lab
    └── PreflightFailed        8  a host is not fit, or its tfctl part speaks another protocol

The numbers are a contract: scripts test them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every verb."""

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


# Of several causes on several hosts, the first of these is the exit code.
PRECEDENCE = (Exit.BAD_FILE, Exit.PREFLIGHT, Exit.UNREACHABLE, Exit.BUSY, Exit.FAILED)


class TfctlError(Exception):
    """A failure that is told to the user in a sentence, never as a traceback.

    ``message`` names the place and the cause; ``remedy`` says what to do or type, and may be empty.
    """

    exit: Exit = Exit.FAILED

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  {self.remedy}" if self.remedy else self.message


class UsageError(TfctlError):
    exit = Exit.USAGE


class BadFile(TfctlError):
    exit = Exit.BAD_FILE


class Unreachable(TfctlError):
    exit = Exit.UNREACHABLE


class Busy(TfctlError):
    exit = Exit.BUSY


class Undone(TfctlError):
    exit = Exit.UNDONE


class NotFound(TfctlError):
    exit = Exit.NOT_FOUND


class PreflightFailed(TfctlError):
    exit = Exit.PREFLIGHT


def first_of(codes: Iterable[Exit]) -> Exit:
    """The exit code of several causes: the first of PRECEDENCE among them, else the first given; OK of none."""
    given = list(codes)
    return next((code for code in PRECEDENCE if code in given), given[0] if given else Exit.OK)


def of_exit(code: int, message: str, remedy: str = "") -> TfctlError:
    """The error that has this exit code: how a node's refusal becomes the client's."""
    kinds = {kind.exit: kind for kind in (UsageError, BadFile, Unreachable, Busy, Undone, NotFound, PreflightFailed)}
    return kinds.get(Exit(code) if code in set(Exit) else Exit.FAILED, TfctlError)(message, remedy)


def together(errors: Sequence[TfctlError]) -> TfctlError:
    """Several hosts' errors as one, a line each with its remedy, and the exit code of the gravest."""
    if len(errors) == 1:
        return errors[0]
    lines = [f"{error.message} ({error.remedy})" if error.remedy else error.message for error in errors]
    return of_exit(first_of(error.exit for error in errors), "\n".join(dict.fromkeys(lines)))
