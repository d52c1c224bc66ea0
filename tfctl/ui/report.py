"""The figures of a job, and its TensorBoard: what the view "Curves" shows beside the samples."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from tfctl.errors import TfctlError
from tfctl.jobs import tensorboard
from tfctl.report.figures import compare
from tfctl.report.read import read
from tfctl.report.table import ReportObject, json_object
from tfctl.ui.objects import ProblemObject, plain_values, problems

if TYPE_CHECKING:
    from tfctl.jobs.state import JobState
    from tfctl.remote.fleet import Fleet

#: How long (s) TensorBoard may take until it listens. It imports TensorFlow.
_LIMIT_S = 60.0


class FiguresObject(TypedDict):
    """``report``: what `tfctl report -o json` prints about the last attempt."""

    report: ReportObject
    errors: list[ProblemObject]


def figures_of(fleet: Fleet, state: JobState) -> object:
    """Return the figures of a job, as FiguresObject. Raises as tfctl.report.read.read."""
    errors: list[TfctlError] = []
    report = compare(read(fleet, [state.job], errors.append))
    return plain_values({"report": json_object(report), "errors": problems(errors)})


class TensorBoards:
    """The TensorBoards that the page has started, one for each job. They end with the page. Thread-safe."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()

    def port(self, fleet: Fleet, state: JobState) -> int:
        """Return the port of this machine that leads to the job's TensorBoard. Start it unless it runs.

        Raise TfctlError if it cannot be started.
        """
        tensorboard.check(state)
        with self._lock:
            running = self._running.get(state.job)
            if running is None or running.error is not None:
                self._running[state.job] = running = _Running(fleet, state)
                threading.Thread(target=running.run, daemon=True).start()
        if not running.known.wait(_LIMIT_S):
            raise TfctlError("TensorBoard has not started within a minute", "see why: tfctl tensorboard " + state.job)
        if running.error is not None:
            raise running.error
        return running.port


@dataclass
class _Running:
    """``known`` is set once TensorBoard listens, or has ended with ``error``."""

    fleet: Fleet
    state: JobState
    known: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    error: TfctlError | None = None

    def run(self) -> None:
        def ready(port: int) -> None:
            self.port = port
            self.known.set()

        task = tensorboard.place(self.state)
        try:
            tensorboard.run(self.fleet, self.state, task, [tensorboard.USUAL_PORT, 0], ready, lambda _: None)
        except TfctlError as error:
            self.error = error
        finally:
            self.error = self.error or TfctlError("TensorBoard has ended")
            self.known.set()
