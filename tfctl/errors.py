"""Errors and their exit codes.

    TfctlError                 1  failed on some host or on this machine
    ├── UsageError             2  invalid command line
    ├── BadFile                3  job file or inventory cannot be used
    ├── Unreachable            4  a host does not answer or cannot be trusted
    ├── Busy                   5  job exists, port or GPU taken
    │   └── Taken              5  other jobs hold ports or GPUs: waiting helps
    ├── Undone                 6  units had been started and were undone
    ├── NotFound               7  no such job, task, host or lab
    └── PreflightFailed        8  a host is not fit, or its node part speaks another protocol

The codes are a public contract: scripts test them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict

from tfctl.node.exits import Exit as Exit
from tfctl.wording import Lines, plain_lines

# When hosts fail for different reasons, the first of these is the exit code.
PRECEDENCE = (Exit.BAD_FILE, Exit.PREFLIGHT, Exit.UNREACHABLE, Exit.BUSY, Exit.FAILED)


class ErrorObject(TypedDict):
    """What is wrong.

    ``exit``: the exit code. ``message``: what is wrong, and where. ``remedy``: what to do, or an empty string.
    """

    exit: int
    message: str
    remedy: str


class TfctlError(Exception):
    """A failure reported to the user as a sentence, never as a traceback.

    ``message`` names the place and the cause; ``remedy`` says what to do or type, and may be empty. ``hosts``: the
    names of the hosts that have failed, set where work on a host ends (`tfctl.remote.fleet`).
    """

    exit: Exit = Exit.FAILED

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.message}\n  {self.remedy}" if self.remedy else self.message

    def json(self) -> ErrorObject:
        """Return the object that `-o json` prints for it."""
        return error_json(self.exit, self.message, self.remedy)


class UsageError(TfctlError):
    exit = Exit.USAGE


class BadFile(TfctlError):
    exit = Exit.BAD_FILE


class Unreachable(TfctlError):
    exit = Exit.UNREACHABLE


class Busy(TfctlError):
    exit = Exit.BUSY


class Taken(Busy):
    pass


class Undone(TfctlError):
    exit = Exit.UNDONE


class NotFound(TfctlError):
    exit = Exit.NOT_FOUND


class PreflightFailed(TfctlError):
    exit = Exit.PREFLIGHT


def error_json(code: int, message: str, remedy: str = "") -> ErrorObject:
    """Return the object that `-o json` prints for an error."""
    return {"exit": int(code), "message": plain_lines(message), "remedy": plain_lines(remedy)}


@contextmanager
def located(place: str) -> Iterator[None]:
    """Begin the message of a BadFile raised in the block with its place: a file, or a key in it."""
    try:
        yield
    except BadFile as error:
        raise BadFile(f"{place}: " + error.message, error.remedy) from None


def first_of(codes: Iterable[Exit]) -> Exit:
    """Return the exit code for several causes: the first by PRECEDENCE, else the first given; OK if there are none."""
    given = list(codes)
    return next((code for code in PRECEDENCE if code in given), given[0] if given else Exit.OK)


def of_hosts(errors: Iterable[TfctlError], hosts: Collection[str]) -> list[TfctlError]:
    """Return the errors of these hosts."""
    return [error for error in errors if not set(error.hosts).isdisjoint(hosts)]


def of_exit(code: int, message: str, remedy: str = "") -> TfctlError:
    """Return an error of the class with this exit code. Turns a node's refusal into the client's error."""
    kinds = {kind.exit: kind for kind in TfctlError.__subclasses__() if kind.__module__ == __name__}
    return kinds.get(Exit(code) if code in set(Exit) else Exit.FAILED, TfctlError)(message, remedy)


def together(errors: Sequence[TfctlError]) -> TfctlError:
    """Combine several hosts' errors into one: a line each, with its remedy, and the exit code by PRECEDENCE."""
    if len(errors) == 1:
        return errors[0]
    lines = [error.message + (" (" + error.remedy + ")" if error.remedy else "") for error in errors]
    combined = of_exit(first_of(error.exit for error in errors), Lines(*dict.fromkeys(lines)))
    combined.hosts = tuple(dict.fromkeys(host for error in errors for host in error.hosts))
    return combined
