"""Which task of a job was the first to fail, and why: from what tasks print, by one table of patterns.

Each rule has a recorded log in tests/unit/node/causes, which is real.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from . import judge, names, wire

_TF = "https://github.com/tensorflow/tensorflow/issues/"


class Rule(NamedTuple):
    """``sentence``: what happened, after the words "TASK on HOST"; named groups of ``pattern`` may be in it and in
    ``remedy``. ``consequence``: the task says only that something has happened to another one. ``source``: where the
    text is from, or "lab" if a task of a lab has printed it."""

    kind: str
    pattern: re.Pattern[str]
    sentence: str
    remedy: str
    source: str
    consequence: bool = False


def _rule(kind: str, pattern: str, sentence: str, remedy: str, source: str, *, consequence: bool = False) -> Rule:
    return Rule(kind, re.compile(pattern), sentence, remedy, source, consequence)


_VERSIONS = "give all hosts the same stack: tfctl provision INVENTORY; tfctl nodes -o wide shows what each has"
#: For each line, the first rule that matches counts. Of all lines, the one whose rule is earliest in this table counts;
#: consequences count only if nothing else matches.
RULES = (
    _rule(
        "GPU memory",
        r"OOM when allocating tensor with shape\[(?P<shape>[\d,]+)\].*device:GPU:\d|CUDA_ERROR_OUT_OF_MEMORY|"
        r"CUDNN_STATUS_ALLOC_FAILED",
        "has no GPU memory left",
        "use smaller batches, or more GPUs per task (`gpus:` in the job file); tfctl top shows the memory in use, and "
        "tfctl nodes who else uses the GPU",
        "https://github.com/Azure/MachineLearningNotebooks/issues/880",
    ),
    _rule(
        "driver too old for the GPU code",
        r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION|PTX was compiled with an unsupported toolchain",
        "cannot run GPU code: its driver is older than the CUDA version that TensorFlow was built with",
        "update the driver: tfctl provision INVENTORY --tags nvidia_driver --upgrade-driver; docs/gpu.md has the table "
        "of drivers and stacks",
        "https://github.com/CY-CHENYUE/ComfyUI-Molmo/issues/26",
    ),
    _rule(
        "driver and library differ",
        r"kernel version (?P<kernel>[\d.]+) does not match DSO version (?P<library>[\d.]+)|"
        r"Driver/library version mismatch",
        "cannot use its GPUs: the driver was updated while the old kernel module is still loaded",
        "reboot the host, or run tfctl provision INVENTORY --tags nvidia_driver --reboot",
        _TF + "4349",
    ),
    _rule(
        "cuDNN too old",
        r"Loaded runtime CuDNN library: (?P<loaded>[\d.]+) but source was compiled with: (?P<wanted>\d[\d.]*\d)",
        "loads cuDNN {loaded}, and TensorFlow needs {wanted}",
        "remove LD_LIBRARY_PATH from `env` if the job sets it; " + _VERSIONS,
        _TF + "60913",
    ),
    _rule(
        "NCCL",
        r"NCCL WARN (?P<what>.+)|NCCL communication aborted: (?P<why>.+)",
        "has an error of NCCL, which connects its GPUs to others: {what}{why}",
        "test the network with tfctl verify; if hosts have several interfaces, set env: {{NCCL_SOCKET_IFNAME: =eth1}}; "
        "env: {{NCCL_DEBUG: INFO}} prints more; without InfiniBand, set NCCL_IB_DISABLE: 1",
        _TF + "51760",
    ),
    _rule(
        "port in use",
        r"[Aa]ddress already in use|Could not start gRPC server|Failed to add any wildcard listeners|"
        r"No address added out of total",
        "cannot listen on its port: another process has it",
        "see who has it with tfctl nodes; choose other ports with tfctl_ports in the inventory",
        "lab",
    ),
    _rule(
        "missing module",
        r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'",
        "cannot import {module}: it is not installed there",
        "name its package in a requirements file (`requirements:` in the job file), and run tfctl provision INVENTORY "
        "--requirements FILE; a module of your own must be in the directory that `code:` names",
        "lab",
    ),
    _rule(
        "missing library",
        r"ImportError: (?P<library>lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "cannot load {library}",
        "install the package that has it on every host, then run tfctl verify",
        "lab",
    ),
    _rule(
        "disk full",
        r"No space left on device|Errno 28\b|ENOSPC",
        "has no space left on a disk",
        "make room: tfctl prune --older-than 14d deletes old jobs; tfctl nodes -o wide shows the free space",
        "lab",
    ),
    _rule(
        "file not on this host",
        r"NotFoundError:.*/part-\d+-of-\d+|NotFoundError:.*_temp\w*/|MergeV2Checkpoints",
        "cannot find the part of a checkpoint that another task has written: they do not share the directory, or "
        "several tasks save to the same one",
        "save to a directory that all hosts share (`output:` in the job file); under multi_worker_mirrored, let every "
        "worker save, but only the chief to the final directory (tfctl_runtime does so)",
        "https://github.com/tensorflow/ecosystem/issues/28",
    ),
    _rule(
        "missing file",
        r"(?:FileNotFoundError: .*No such file or directory: |NotFoundError: .*?)(?P<path>'[^']+'|/\S+); ?No such file|"
        r"FileNotFoundError: .*No such file or directory: (?P<name>'[^']+')",
        "cannot find a file",
        "put it on every host that has a task: with `code:`, a data set (tfctl_datasets) or a shared directory",
        "lab",
    ),
    _rule(
        "one file for several workers",
        r"There aren't enough elements in this dataset for each shard",
        "gets no data: the data set has fewer files than there are workers",
        "set options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA, or write "
        "the data to more files; tfctl_runtime.dataset() chooses by itself",
        _TF + "36846",
    ),
    _rule(
        "evaluator in the cluster",
        r"There must be at most one 'evaluator' job|evaluator.*should not be in.*cluster",
        "finds evaluators in its cluster, where TensorFlow does not allow them",
        "leave TF_CONFIG to tfctl: it puts the evaluator outside of the cluster",
        "lab",
    ),
    _rule(
        "versions differ",
        r"NodeDef mentions attr '(?P<attr>\w+)' not in Op|Op type not registered '(?P<op>\w+)'|"
        r"Check whether your GraphDef-interpreting binary is up to date",
        "gets an operation that its TensorFlow does not know: another task has another version",
        _VERSIONS,
        "https://github.com/tensorflow/serving/issues/831",
    ),
    _rule(
        "proxy",
        r"scheme not supported in proxy URI|HTTP proxy returned response code",
        "connects to other tasks through an HTTP proxy",
        "set no_grpc_proxy to the addresses of the hosts in `env`, or remove http_proxy and https_proxy there",
        _TF + "24887",
    ),
    _rule(
        "out of memory",
        r"MemoryError\b|std::bad_alloc|Cannot allocate memory",
        "has no memory left",
        "use less (smaller batches, a smaller shuffle buffer), or raise `memory:` of the role",
        "lab",
    ),
    _rule(
        "interrupted by another task",
        r"[Hh]eartbeat timeout|Connection reset by peer|Socket closed|UnavailableError|CancelledError|AbortedError|"
        r"Horovod has been shut ?down|HorovodInternalError|was preempted|another task .* failed|DEADLINE_EXCEEDED|"
        r"failed to connect to all addresses|Connection refused",
        "has lost another task",
        "look at the task that ended first",
        "lab",
        consequence=True,
    ),
    _rule(
        "error in the program",
        r"^(?:[\w.]+\.)?(?P<error>\w*(?:Error|Exception|Interrupt|Exit))(?:: (?P<message>.*))?$",
        "raised {error}: {message}",
        "see its traceback: tfctl logs",
        "lab",
    ),
    _rule(
        "crash",
        r"Segmentation fault|core dumped|^F\d{4} |Fatal Python error: (?P<what>.+)|terminate called",
        "crashed",
        "see its last lines: tfctl logs",
        "lab",
    ),
)  # fmt: skip


#: How much of a line is searched: some patterns take longer than its length.
_SEARCHED = 4000


class Found(NamedTuple):
    """A rule that applies to a line, which was printed at a time (epoch s)."""

    rule: Rule
    time: float
    line: str
    groups: dict[str, str]

    @property
    def sentence(self) -> str:
        return self.rule.sentence.format_map(_Known(self.groups)).rstrip(": ")

    @property
    def remedy(self) -> str:
        return self.rule.remedy.format_map(_Known(self.groups))


class _Known(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


def find(lines: Iterable[tuple[float, str]]) -> Found | None:
    """Return what the lines of a task say of its end: a rule about a cause before one about a consequence, and the
    earlier rule of the table before a later one."""
    found = [one for time, line in lines if (one := _of_line(time, line)) is not None]
    return min(found, key=lambda one: (one.rule.consequence, RULES.index(one.rule), one.time), default=None)


def _of_line(time: float, line: str) -> Found | None:
    for rule in RULES:
        if match := rule.pattern.search(line, 0, _SEARCHED):
            return Found(rule, time, line, {name: value or "" for name, value in match.groupdict().items()})
    return None


class Culprit(NamedTuple):
    """The task whose failure, or restart, was the first one. ``kind``: of the cause. ``sentence``: what happened.
    ``remedy``: what to do. ``line``: what it has printed about it, or ""."""

    task: wire.RecordedTask
    kind: str
    sentence: str
    remedy: str
    line: str


def of_job(job: str, tasks: Iterable[tuple[wire.RecordedTask, wire.TaskStatus]]) -> Culprit | None:
    """Return the task whose failure explains those of the others, if one has failed, was lost or was restarted.

    One that has printed a cause comes before one that has not, or that has printed only that another task has ended.
    """
    ended = [(task, status) for task, status in tasks if has_failed(status)]
    first = min(ended, key=lambda item: _order(item[1]), default=None)
    return None if first is None else _culprit(job, *first)


def has_failed(status: wire.TaskStatus) -> bool:
    """Return whether a task has failed, was lost, or was restarted."""
    return status.state in ("failed", "lost") or status.restarts > 0


def _order(status: wire.TaskStatus) -> tuple[bool, float]:
    if status.cause is not None and not status.cause.consequence:
        return False, status.cause.time
    return True, status.finished or status.started or float("inf")


def _culprit(job: str, task: wire.RecordedTask, status: wire.TaskStatus) -> Culprit:
    name, cause = names.task(*task.name), status.cause
    where = f"{name} on {task.host}"
    line = cause.line if cause else ""
    if status.oom or status.last_oom:
        remedy = "use less memory (smaller batches, a smaller shuffle buffer), or raise `memory:` of the role"
        return Culprit(task, "out of memory", f"{where} {how_ended(task, status)}", remedy, line)
    if cause is not None and not (cause.consequence and status.signal):
        return Culprit(task, cause.kind, f"{where} {cause.sentence}", cause.remedy, line)
    remedy = f"see its last lines: tfctl logs {job} {task.role} {task.index}"
    return Culprit(task, "ended", f"{where} {how_ended(task, status)}", remedy, line)


def how_ended(task: wire.RecordedTask, status: wire.TaskStatus) -> str:
    """Return how a task has failed or was restarted, after the words "TASK on HOST"."""
    if status.state in ("failed", "lost"):
        return judge.failure(status, task.host, task.memory).partition(f"{task.host} ")[2]
    ending = status.last_signal or (f"exit code {status.last_exit_code}" if status.last_exit_code is not None else "")
    times = "once" if status.restarts == 1 else f"{status.restarts} times"
    why = f": {judge.out_of_memory(task.memory)}" if status.last_oom else ""
    return f"was restarted {times}{f', the last time after {ending}' if ending else ''}{why}"


def noted(lines: Iterable[wire.Printed]) -> wire.Cause | None:
    """Return what the lines of a task say of its end, in the form in which hosts report it."""
    found = find((line.time, line.text) for line in lines)
    if found is None:
        return None
    return wire.Cause(
        found.rule.kind, found.sentence, found.remedy, found.line.strip(), round(found.time, 3),
        found.rule.consequence or None,
    )  # fmt: skip
