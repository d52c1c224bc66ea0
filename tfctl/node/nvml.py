"""Readings of GPUs by NVIDIA's library, from a child process that may see the GPUs and do nothing else.

A call of a sick driver may never return, so it happens in a process that can be killed. The child executes no program,
runs as the guards' user with the groups of the jobs' user, and has no capabilities; the unit of its parent
(tfctl.node.guards) leaves it no devices but NVIDIA's. It keeps its handles, so that a reading costs only the calls.

Read: the reference of the NVIDIA Management Library (docs.nvidia.com/deploy/nvml-api). nvidia-smi would start a process
for each reading, and its output may change with the driver, which that of the library may not.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import select
import signal
import time
from collections.abc import Sequence
from typing import Any

from . import forked, wire
from .system import System

#: How long (s) an answer may take, and how long after a start another one may follow.
_ANSWER_S, _AGAIN_S = 2.0, 60.0
#: nvmlTemperatureSensors_t, nvmlClockType_t: of the chip, and of its multiprocessors.
_CHIP, _SM = 0, 1
_MIB = 1 << 20
_LONGEST = 1 << 16


class GpuReader:
    """Reads these GPUs, named by UUID. ``read`` returns nothing as long as the library gives no answer."""

    def __init__(self, system: System, uuids: Sequence[str]) -> None:
        self._system, self.uuids = system, tuple(uuids)
        self._child = 0
        self._source = self._sink = -1
        self._started = -_AGAIN_S

    def read(self) -> dict[str, wire.GpuSample]:
        """Return what is known of each GPU at this moment."""
        if not self._child and time.monotonic() - self._started < _AGAIN_S:
            return {}
        try:
            if not self._child:
                self._start()
            os.write(self._sink, b"\n")
            return {uuid: wire.decode(wire.GpuSample, row) for uuid, row in self._answer().items()}
        except (OSError, ValueError, KeyError):
            self.close()
            return {}

    def close(self) -> None:
        """End the child. One that hangs in the kernel is left to it."""
        if self._child:
            with contextlib.suppress(OSError):
                os.kill(self._child, signal.SIGKILL)
            for descriptor in (self._source, self._sink):
                os.close(descriptor)
            with contextlib.suppress(OSError):
                for _ in range(20):
                    if os.waitpid(self._child, os.WNOHANG)[0]:
                        break
                    time.sleep(0.005)
        self._child = 0

    def _start(self) -> None:
        self._started = time.monotonic()
        guard, jobs = pwd.getpwnam(self._system.guard), pwd.getpwnam(self._system.account)
        groups = os.getgrouplist(jobs.pw_name, jobs.pw_gid)
        questions, self._sink = os.pipe()
        self._source, answers = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            with contextlib.suppress(BaseException):
                forked.close_all_but(2, questions, answers)
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                forked.drop_root(guard.pw_uid, guard.pw_gid, groups)
                _serve(self._system.nvml, self.uuids, questions, answers)
            os._exit(0)
        os.close(questions)
        os.close(answers)

    def _answer(self) -> dict[str, Any]:
        """Return the next line of the child. Raises OSError, ValueError."""
        found, until = b"", time.monotonic() + _ANSWER_S
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([self._source], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._source, _LONGEST) if ready else b""
            if not data:
                raise OSError("the GPUs do not answer")
            found += data
        return wire.parse(found)


def _serve(library: str, uuids: Sequence[str], questions: int, answers: int) -> None:
    """Answer each byte with a line until there is no more, or none of the GPUs answers."""
    nvml = ctypes.CDLL(library)
    if nvml.nvmlInit_v2() != 0:
        return
    handles = {uuid: handle for uuid in uuids if (handle := _handle(nvml, uuid)) is not None}
    while os.read(questions, 1):
        found = {uuid: wire.encode(_read(nvml, handle)) for uuid, handle in handles.items()}
        os.write(answers, json.dumps(found).encode() + b"\n")
        if not any(found.values()):
            return


def _handle(nvml: Any, uuid: str) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    failed = nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
    return None if failed else handle


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def _read(nvml: Any, handle: ctypes.c_void_p) -> wire.GpuSample:
    """Return the readings of a GPU: None for what the library refuses, as the use of a MIG instance."""
    use, memory = _Utilization(), _Memory()
    use_failed = nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(use))
    memory_failed = nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
    milliwatts = _number(nvml.nvmlDeviceGetPowerUsage, handle)
    return wire.GpuSample(
        use=None if use_failed else use.gpu,
        memory=None if memory_failed else memory.used // _MIB,
        celsius=_number(nvml.nvmlDeviceGetTemperature, handle, _CHIP),
        watts=None if milliwatts is None else round(milliwatts / 1000),
        mhz=_number(nvml.nvmlDeviceGetClockInfo, handle, _SM),
    )


def _number(call: Any, handle: ctypes.c_void_p, *kind: int) -> int | None:
    found = ctypes.c_uint()
    return None if call(handle, *kind, ctypes.byref(found)) else found.value
