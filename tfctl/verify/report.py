"""What the program of a proof reports on a host (on_nodes/result.py)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Reported(BaseModel):
    model_config = ConfigDict(frozen=True)


class Software(_Reported):
    """What a stack has on one host. ``horovod_has``: what Horovod was built with (gloo, mpi)."""

    devices: tuple[str, ...]
    python: str
    tensorflow: str
    horovod: str | None = None
    horovod_has: tuple[str, ...] | None = None


class Speed(_Reported):
    """The speed of an all-reduce. ``mb_per_s``: the data of one host by time. ``replicas`` of TensorFlow or ``ranks``
    of Horovod took part. ``slow``: a pair that has less than half of the median of all pairs."""

    mb_per_s: float
    replicas: int | None = None
    ranks: int | None = None
    seconds: float
    slow: bool | None = None


class Pair(_Reported):
    """The speed of an all-reduce with one other host. ``partner`` is its index."""

    partner: int
    mb_per_s: float
    seconds: float


class BurnInDevice(_Reported):
    """A device that was under load. ``device``: such as GPU:0. ``name``: that of the card, or CPU.

    ``gflops`` is the median of all samples of its speed (GFLOP/s), ``lowest_gflops`` the least. ``wrong``: how many
    products differed from the first one. ``celsius``: the highest temperature. ``ecc_errors``: new errors of its memory
    that were not corrected. The last two are None if nvidia-smi does not report them.
    """

    device: str
    name: str
    gflops: float
    lowest_gflops: float
    wrong: int = 0
    celsius: int | None = None
    ecc_errors: int | None = None

    @property
    def is_gpu(self) -> bool:
        return self.device.startswith("GPU")


class BurnInReport(_Reported):
    """The devices of a host after the burn-in."""

    devices: tuple[BurnInDevice, ...]


class Trouble(_Reported):
    """What went wrong with one other host. ``partner`` is its index."""

    partner: int
    message: str


class HostReport(_Reported):
    """One host's report of a proof.

    ``message`` and ``remedy`` explain a failure. ``stopped``: another host had failed before this one was done.
    ``all``: the speed over all hosts. ``lost``: the hosts with which no bytes could be exchanged over plain TCP.
    ``broken``: the host with which an all-reduce failed. ``burned``: the devices that were under load.
    """

    ok: bool
    message: str = ""
    remedy: str = ""
    stopped: bool = False
    software: Software | None = None
    all: Speed | None = None
    pairs: tuple[Pair, ...] = ()
    lost: tuple[Trouble, ...] = ()
    broken: Trouble | None = None
    burned: tuple[BurnInDevice, ...] = ()
