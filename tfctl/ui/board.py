"""A value that a thread keeps up to date as long as somebody looks at it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tfctl.errors import TfctlError
from tfctl.ui.streams import Pipe
from tfctl.wording import plain_lines

#: How long (s) the thread goes on after the last look.
_KEPT_S = 10.0
#: How long (s) a reader waits for a change.
_LOOK_S = 1.0


class Board:
    """Several browsers read one value; one thread asks the hosts for it. `work` runs in that thread."""

    def __init__(self, work: Callable[[Board], None]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._version = 0
        self._value: object = None
        self._looked = 0.0
        self._runs = False

    @property
    def wanted(self) -> bool:
        """Whether somebody has looked lately."""
        return time.monotonic() - self._looked < _KEPT_S

    def put(self, value: object) -> None:
        """Show another value."""
        with self._changed:
            if value != self._value:
                self._value = value
                self._version += 1
                self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Sleep, but not longer than somebody looks."""
        until = time.monotonic() + seconds
        while self.wanted and time.monotonic() < until:
            time.sleep(0.2)

    def follow(self, pipe: Pipe) -> None:
        """Send the value, and again at every change, until the reader is gone."""
        seen = 0
        while not pipe.over.is_set():
            with self._changed:
                self._looked = time.monotonic()
                if not self._runs:
                    self._runs = True
                    threading.Thread(target=self._run, daemon=True).start()
                if self._version <= seen:
                    self._changed.wait(_LOOK_S)
                changed, seen, value = self._version > seen, self._version, self._value
            if changed:
                pipe.send("state", value)

    def _run(self) -> None:
        while True:
            try:
                self._work(self)
            except TfctlError as error:
                self.put({"error": plain_lines(error.message), "remedy": plain_lines(error.remedy)})
                self.pause(3.0)
            with self._changed:
                if not self.wanted:
                    self._runs = False
                    self._value, self._version = None, 0
                    return
