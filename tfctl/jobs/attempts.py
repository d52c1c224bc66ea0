"""The attempts of a job that is followed: the current one, then each that the job's guard starts."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfctl.jobs.state import JobState
from tfctl.jobs.wait import Silence, changes

if TYPE_CHECKING:
    from tfctl.jobs.answers import Answers
    from tfctl.remote.fleet import Fleet


class Attempts:
    """``state``: the attempt to follow; ``over``: set once it has ended or another one has begun.

    One thread calls `note` and `end`, another one follows.
    """

    def __init__(self, state: JobState) -> None:
        self.state = state
        self.over = threading.Event()
        self._next: deque[JobState] = deque()
        self._ended = False
        self._lock = threading.Lock()

    def note(self, found: JobState) -> bool:
        """Take note of the latest state. Return whether it is the first of an attempt."""
        with self._lock:
            current = self._next[-1] if self._next else self.state
            if found.attempt == current.attempt:
                return False
            self._next.append(found)
            self.over.set()
            return True

    def end(self) -> None:
        """Record that no other attempt will begin."""
        with self._lock:
            self._ended = True
            self.over.set()

    def advance(self) -> bool:
        """Go on to the next attempt. Return whether there is one. Call it once all of `state` has been read."""
        with self._lock:
            if not self._next:
                return False
            self.state = self._next.popleft()
            self.over = threading.Event()
            if self._ended or self._next:
                self.over.set()
            return True


class Watch:
    """Watches a job in a thread while its lines are followed.

    The ``attempts`` end with the job, with `end`, or once ``error`` says why it cannot be watched. ``note`` gets each
    later state, and whether it is the first of an attempt.
    """

    def __init__(
        self,
        fleet: Fleet,
        state: JobState,
        answers: Answers,
        note: Callable[[JobState, bool], object] = lambda _state, _first: None,
    ) -> None:
        self.attempts = Attempts(state)
        self.error: BaseException | None = None
        self._fleet, self._answers, self._note = fleet, answers, note
        threading.Thread(target=self._run, args=(state,), daemon=True).start()

    def end(self) -> None:
        """End the attempts, and do not wait for hosts any more."""
        self.attempts.end()
        self._answers.end()

    def _run(self, state: JobState) -> None:
        silence = Silence(lambda _: None)  # those who read the lines report silent hosts
        try:
            for later in changes(self._fleet, state.job, state.attempt, silence, answers=self._answers):
                self._note(later, self.attempts.note(later))
                if later.over:
                    break
        except BaseException as error:  # for the thread that follows
            self.error = error
        finally:
            self.attempts.end()
