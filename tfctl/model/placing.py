"""The variables by which tfctl places a task: in a cluster, on GPUs, among ranks. A job must not set them itself."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from tfctl.errors import BadFile
from tfctl.model.jobfile import JobFile
from tfctl.model.strategies.base import Strategy
from tfctl.model.task import Slot
from tfctl.model.variables import ExternalVariables, source

CONFIG, DEVICES = "TF_CONFIG", "CUDA_VISIBLE_DEVICES"
_REMEDY = "remove it, and set `gpus` of the role"


def variables(strategy: Strategy) -> tuple[str, ...]:
    """Return the variables of a strategy that place a task, as patterns of fnmatch."""
    return (CONFIG, DEVICES, *strategy.placing)


def is_placing(strategy: Strategy, name: str) -> bool:
    """Return whether a variable places a task."""
    return any(fnmatchcase(name, pattern) for pattern in variables(strategy))


def hides_gpus(value: str | None) -> bool:
    """Return whether a value of CUDA_VISIBLE_DEVICES hides all GPUs. None is a value that is not known."""
    return value is not None and value.strip().partition(",")[0] in ("", "-1", "NoDevFiles")


def check(job: JobFile, strategy: Strategy, slots: Iterable[Slot], outside: ExternalVariables) -> None:
    """Raise BadFile for a variable of the job that places its tasks, unless it hides GPUs that they do not request."""
    for slot in {slot.role: slot for slot in slots}.values():
        for name, value in slot.env.items():
            if not is_placing(strategy, name):
                continue
            place = source(job, slot.role, name, outside)
            if name != DEVICES:
                raise BadFile(f"{place}: {name} is set by tfctl for each task", "remove it")
            if not hides_gpus(value):
                raise BadFile(f"{place}: {name} is set by tfctl for each task", _REMEDY)
            if slot.gpus:
                raise BadFile(
                    f"{place}: {name} hides the GPUs that `gpus: {slot.gpus}` requests for {slot.role}",
                    "remove it, or set `gpus: 0`",
                )
