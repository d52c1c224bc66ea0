"""Ctrl-C, SIGTERM and SIGHUP: each interrupts the command by a KeyboardInterrupt."""

from __future__ import annotations

import signal
from types import FrameType

#: How often (s) to look whether an import has ended.
_LOOK_S = 0.02
#: Where the code of the import statement is.
_IMPORT = "<frozen importlib._bootstrap>"

_received = 0
#: Whether SIGALRM will look whether the import has ended.
_waits = False
_ignored = False


def install() -> None:
    """Handle the signals, unless this process was started with the signal ignored, as nohup does with SIGHUP."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _count)
    signal.signal(signal.SIGALRM, _interrupt)


def received() -> bool:
    """Return whether a signal has been received."""
    return _received > 0


def ignore() -> None:
    """Ignore further signals: the command has been interrupted, and only says so."""
    global _ignored
    _ignored = True


def _count(number: int, frame: FrameType | None) -> None:
    global _received
    _received += 1
    _interrupt(number, frame)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the command. Wait until no module is being imported, or for a second signal: a module that was imported
    by halves fails later, and some libraries turn the exception into another one."""
    global _waits
    if _ignored or (number == signal.SIGALRM and not _waits):  # the second signal has come before the alarm
        return
    _waits = _received < 2 and _imports(frame)
    if not _waits:
        raise KeyboardInterrupt
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False
