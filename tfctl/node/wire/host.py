"""What a host has, and who uses it."""

from typing import NamedTuple, Optional

from .status import TaskStateName


class Gpu(NamedTuple):
    """A device for tasks; a MIG instance counts as one, and its UUID begins with MIG-. ``index``: its position by PCI
    address, from 0. ``memory_mib``: 0 if unknown. ``holder``: who uses it, or empty."""

    uuid: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    name: str
    memory_mib: int
    holder: str


class Card(NamedTuple):
    """An NVIDIA card: its settings and readings. Unknown ones are None.

    ``persistence``, ``ecc``: whether these modes are enabled. ``ecc_errors``: memory errors since the last reboot that
    were not corrected. ``mhz``, ``max_mhz``: of the processors. ``mig``: the profiles of the MIG instances; None if the
    card is not in MIG mode.
    """

    uuid: str
    name: str
    persistence: Optional[bool] = None
    ecc: Optional[bool] = None
    ecc_errors: Optional[int] = None
    mhz: Optional[int] = None
    max_mhz: Optional[int] = None
    celsius: Optional[int] = None
    watts: Optional[int] = None
    mig: Optional[tuple[str, ...]] = None


class Disk(NamedTuple):
    """The file system of a directory. ``device`` identifies it among those of its host."""

    path: str
    device: int
    free_mib: int
    total_mib: int


class RunningTask(NamedTuple):
    """A live task of any job."""

    job: str
    role: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    state: TaskStateName
