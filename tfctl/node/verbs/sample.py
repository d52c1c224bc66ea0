"""The verb `sample`: tell the guard of a job, again and again, what its tasks use and how far they are."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from .. import fields, jobstore, names, usage, wire
from ..nvml import GpuReader
from ..printed import LineFollower
from ..progress import FORMATS, Progress, format_of
from ..session import NodeSession
from ..system import System
from ..usage import Usage
from ..wire import TaskName

#: How long (s) after the beginning of an attempt its first sample is taken.
_FIRST_S = 2.0


def run(system: System, session: NodeSession, request: wire.SampleRequest) -> None:
    """Send samples of the latest attempt until the guard has closed its end. Raises RequestRefused, Gone, OSError."""
    job = fields.job_name(request.job)
    sampler: Sampler | None = None
    pause = _FIRST_S
    try:
        while not session.heard_of_end(pause):
            record = jobstore.record(system, job, jobstore.latest(system, job))
            pause = _FIRST_S
            if sampler is not None and sampler.record == record:
                session.send(wire.Sampled(sampler.record.attempt, sampler.sample()))
                pause = wire.SAMPLE_S
            elif record is not None:
                if sampler is not None:
                    sampler.close()
                sampler = Sampler(system, record)
    finally:
        if sampler is not None:
            sampler.close()


class _Before(NamedTuple):
    time: float
    usage: dict[TaskName, Usage]
    network: tuple[int, int] | None


class Sampler:
    """The tasks of an attempt on this host."""

    def __init__(self, system: System, record: wire.Record) -> None:
        self._system, self.record = system, record
        here = set(jobstore.tasks(system, record.job, record.attempt, record))
        self._tasks = [task for task in record.tasks if task.name in here]
        kinds = list(FORMATS.values())
        if record.progress:
            with contextlib.suppress(ValueError):  # an older Python cannot compile it
                kinds = [format_of(record.progress)]
        self._progress = {task.name: Progress(kinds, record.progress_total) for task in self._tasks}
        self._printed = LineFollower(system, record.job, record.run, self._progress)
        self._gpus = GpuReader(system, [uuid for task in self._tasks for uuid in task.gpus])
        self._before = self._look()

    def close(self) -> None:
        """End the processes that this has started."""
        self._printed.close()
        self._gpus.close()

    def sample(self) -> wire.Sample:
        """Return the sample of the time since the one before."""
        self._printed.read()
        gpus = self._gpus.read() if self._gpus.uuids else {}
        before, now = self._before, self._look()
        self._before = now
        passed = max(0.001, now.time - before.time)
        received = sent = None
        if now.network and before.network:
            received, sent = (_rate(first, last, passed) for first, last in zip(before.network, now.network))
        tasks = tuple(self._task(task, before, now, passed, gpus) for task in self._tasks)
        return wire.Sample(round(time.time(), 1), received, sent, tasks)

    def _look(self) -> _Before:
        found = {task.name: usage.of_task(self._system, self.record.job, task.name) for task in self._tasks}
        known = {task: one for task, one in found.items() if one is not None}
        return _Before(time.monotonic(), known, usage.network(self._system))

    def _task(
        self, task: wire.RecordedTask, before: _Before, now: _Before, passed: float, gpus: dict[str, wire.GpuSample]
    ) -> wire.TaskSample:
        here, last = now.usage.get(task.name), before.usage.get(task.name)
        progress = self._progress[task.name]
        self._read_timings(task.name, progress)
        moment = time.time()
        printed = self._printed.last.get(task.name)
        sample = wire.TaskSample(
            *task.name,
            silent=None if printed is None else round(max(0.0, moment - printed), 1),
            gpus=tuple(gpus.get(uuid, wire.GpuSample()) for uuid in task.gpus) if gpus and task.gpus else None,
            **progress.sample(moment),
        )
        if here is None:  # it has ended, or has not begun
            return sample._replace(silent=None, gpus=None, rate=None, job_rate=None, pace=None, left=None)
        sample = sample._replace(memory=here.memory)
        if last is None or last.cpu is None or here.cpu is None or here.cpu < last.cpu:
            return sample  # it was started meanwhile
        return sample._replace(
            cpu=round((here.cpu - last.cpu) / passed, 2),
            read=_rate(last.read, here.read, passed),
            written=_rate(last.written, here.written, passed),
        )

    def _read_timings(self, task: TaskName, progress: Progress) -> None:
        path = self._system.at(names.timings_file(self.record.job, self.record.attempt, *task))
        with contextlib.suppress(OSError, wire.Malformed):
            progress.take_timings(wire.parse(jobstore.read_untrusted(path).rstrip().rpartition(b"\n")[2]))


def _rate(first: int | None, last: int | None, passed: float) -> int | None:
    return None if first is None or last is None or last < first else round((last - first) / passed)
