"""What a job uses and how far it is, as its hosts sample it while it runs."""

from typing import NamedTuple, Optional

from .codec import Figure, as_rows
from .record import TaskName


class GpuSample(NamedTuple):
    """A GPU of a task. ``use``: percent of the time in which it computed; ``memory``: MiB in use. Unknown values are
    None: a MIG instance has no ``use``."""

    use: Optional[int] = None
    memory: Optional[int] = None
    celsius: Optional[int] = None
    watts: Optional[int] = None
    mhz: Optional[int] = None


class TaskSample(NamedTuple):
    """A task over the time since the sample before. Unknown values are None.

    ``cpu``: cores. ``memory``: MiB, without the page cache. ``read``, ``written``: bytes per second, of disks.
    ``silent``: how long ago (s) it printed its last line. ``step``, ``total``, ``epoch``: how far the training is.
    ``percent``: of the whole. ``left``: seconds to its end, at the pace of the last minutes. ``rate``: examples per
    second of this task; ``job_rate``: of the whole job, if the task says so; ``pace``: steps per second. ``figures``:
    the loss and whatever else its lines name. ``gpus``: in the order of its record.
    """

    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    cpu: Optional[float] = None
    memory: Optional[int] = None
    read: Optional[int] = None
    written: Optional[int] = None
    silent: Optional[float] = None
    step: Optional[int] = None
    total: Optional[int] = None
    epoch: Optional[int] = None
    percent: Optional[float] = None
    left: Optional[float] = None
    rate: Optional[float] = None
    job_rate: Optional[float] = None
    pace: Optional[float] = None
    figures: Optional[dict[str, Figure]] = None
    gpus: Optional[tuple[GpuSample, ...]] = None

    @property
    def name(self) -> TaskName:
        return self.role, self.index


class Sample(NamedTuple):
    """The tasks of an attempt on one host. ``received``, ``sent``: bytes per second of the host's network."""

    time: float
    received: Optional[int]
    sent: Optional[int]
    tasks: tuple[TaskSample, ...]


as_rows(GpuSample, TaskSample, Sample)
