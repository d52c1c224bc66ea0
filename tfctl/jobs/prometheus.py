"""Metrics of jobs, tasks and hosts in the text format of Prometheus. The only file that imports prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, get_args

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tfctl.errors import Busy
from tfctl.jobs.metrics import Scrape
from tfctl.jobs.past import PastJob
from tfctl.jobs.state import JobState, TaskState
from tfctl.model.gpus import missing_count
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.wording import plain

#: For how long (s) a job that is over is reported.
RECENT_S = 86400.0
#: How many names of figures a job may have.
FIGURES = 20
#: The longest value of a label.
_LABEL_LENGTH = 120
_MIB = 2**20

_JOB = ("job",)
_TASK = ("job", "role", "index", "host")
_GPU = (*_TASK, "gpu")
_HOST = ("host",)


class Exported(NamedTuple):
    """A metric. ``labels``: their names. ``help``: a sentence without a full stop."""

    name: str
    labels: tuple[str, ...]
    help: str
    kind: Literal["gauge", "counter"] = "gauge"


#: All metrics.
METRICS = (
    Exported("tfctl_job_info", (*_JOB, "strategy"), "Constant 1, with the strategy of the job"),
    Exported("tfctl_job_state", (*_JOB, "state"), "Whether the job is in this state"),
    Exported("tfctl_job_attempt", _JOB, "Number of the latest attempt"),
    Exported("tfctl_job_start_time_seconds", _JOB, "When that attempt was started, in seconds since 1970"),
    Exported("tfctl_job_step", _JOB, "Steps so far, by the slowest of the tasks that decide the job"),
    Exported("tfctl_job_planned_steps", _JOB, "Steps of the whole job"),
    Exported("tfctl_job_epoch", _JOB, "Number of the present epoch, from 1"),
    Exported("tfctl_job_progress_ratio", _JOB, "How much of the job is done, from 0 to 1"),
    Exported("tfctl_job_examples_per_second", _JOB, "Examples per second of the whole job"),
    Exported("tfctl_job_remaining_seconds", _JOB, "Time to the end of the job, at the pace of the last minutes"),
    Exported("tfctl_task_state", (*_TASK, "state"), "Whether the task is in this state"),
    Exported("tfctl_task_restarts_total", _TASK, "Restarts of the task in this attempt", "counter"),
    Exported("tfctl_task_step", _TASK, "Steps so far"),
    Exported("tfctl_task_steps_per_second", _TASK, "Steps per second"),
    Exported("tfctl_task_examples_per_second", _TASK, "Examples per second of this task"),
    Exported("tfctl_task_figure", (*_TASK, "figure"), "The last loss, or other number that the task has printed"),
    Exported("tfctl_task_cpu_cores", _TASK, "CPU cores in use, as a mean since the sample before"),
    Exported("tfctl_task_memory_bytes", _TASK, "Memory in use, without the page cache"),
    Exported("tfctl_task_disk_read_bytes_per_second", _TASK, "Bytes read from disks"),
    Exported("tfctl_task_disk_written_bytes_per_second", _TASK, "Bytes written to disks"),
    Exported("tfctl_task_last_line_age_seconds", _TASK, "Age of the last line of the task, when sampled"),
    Exported("tfctl_task_gpu_use_ratio", _GPU, "Share of the time in which the GPU computed, from 0 to 1"),
    Exported("tfctl_task_gpu_memory_bytes", _GPU, "Memory of the GPU in use"),
    Exported("tfctl_task_gpu_temperature_celsius", _GPU, "Temperature of the GPU"),
    Exported("tfctl_task_gpu_power_watts", _GPU, "Power that the GPU draws"),
    Exported("tfctl_task_gpu_clock_hertz", _GPU, "Clock of the processors of the GPU"),
    Exported("tfctl_host_up", _HOST, "Whether the host has answered this scrape"),
    Exported("tfctl_host_load1", _HOST, "Load of the last minute"),
    Exported("tfctl_host_memory_available_bytes", _HOST, "Memory that programs can still get"),
    Exported("tfctl_host_disk_free_bytes", (*_HOST, "path"), "Free space in a directory of jobs or output"),
    Exported("tfctl_host_gpus", (*_HOST, "state"), "GPUs that are free, held by a job, defective or missing"),
    Exported("tfctl_scrape_duration_seconds", (), "How long tfctl has taken to ask the hosts"),
    Exported("tfctl_scrape_errors", (), "How many errors there were while tfctl asked the hosts"),
)  # fmt: skip


def families(scrape: Scrape) -> Iterator[Metric]:
    """Yield each metric with its values."""
    values = _Values()
    for job in scrape.jobs:
        if not job.ended or job.alive or scrape.time - (job.finished or job.started) < RECENT_S:
            _add_job(values, job)
    for host, node in scrape.hosts:
        values.add("tfctl_host_up", float(node is not None), host.name)
        if node is not None:
            _add_host(values, host, node)
    values.add("tfctl_scrape_duration_seconds", scrape.seconds)
    values.add("tfctl_scrape_errors", len(scrape.errors))
    yield from values.families()


def text(scrape: Scrape) -> str:
    """Return the metrics in the text format."""
    return generate_latest(_registry(lambda: scrape)).decode()


@contextmanager
def served(scrape: Callable[[], Scrape], address: str, port: int) -> Iterator[int]:
    """Serve the metrics over HTTP during the block, each time those of a new scrape. Yield the port; 0 means any.

    Raise Busy if the port cannot be used.
    """
    try:
        server, thread = start_http_server(port, address, _registry(scrape))
    except OSError as error:
        raise Busy(f"port {port} of {address} cannot be used: {error.strerror}", "name another one") from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(1.0)


def _registry(scrape: Callable[[], Scrape]) -> CollectorRegistry:
    class Jobs(Collector):
        def collect(self) -> Iterable[Metric]:
            return families(scrape())

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Jobs())
    return registry


class _Values:
    """The values of all metrics, by their labels. The first one of equal labels counts: Prometheus rejects doubles."""

    def __init__(self) -> None:
        self._found: dict[str, dict[tuple[str, ...], float]] = {each.name: {} for each in METRICS}

    def add(self, name: str, value: float | None, *labels: object) -> None:
        """Add a value, unless it is unknown. A host or a program may have chosen the labels."""
        if value is not None:
            self._found[name].setdefault(tuple(plain(str(label))[:_LABEL_LENGTH] for label in labels), value)

    def families(self) -> Iterator[Metric]:
        for each in METRICS:
            family = (CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily)(
                each.name, each.help, labels=each.labels
            )
            for labels, value in self._found[each.name].items():
                family.add_metric(labels, value)
            yield family


def _add_job(values: _Values, job: JobState | PastJob) -> None:
    name = job.job
    values.add("tfctl_job_info", 1, name, job.strategy)
    for state in get_args(wire.JobStateName):
        values.add("tfctl_job_state", state == job.state, name, state)
    values.add("tfctl_job_attempt", job.attempt, name)
    values.add("tfctl_job_start_time_seconds", job.started, name)
    progress = job.progress
    if progress is not None:
        values.add("tfctl_job_step", progress.step, name)
        values.add("tfctl_job_planned_steps", progress.total, name)
        values.add("tfctl_job_epoch", progress.epoch, name)
        values.add("tfctl_job_progress_ratio", _scaled(progress.percent, 0.01), name)
        values.add("tfctl_job_examples_per_second", progress.rate, name)
        values.add("tfctl_job_remaining_seconds", progress.left, name)
    if isinstance(job, JobState):
        figures = _figure_names(job)
        for task in job.tasks:
            _add_task(values, (name, task.role, task.index, task.host), task, figures)


def _add_task(values: _Values, labels: tuple[object, ...], task: TaskState, figures: Iterable[str]) -> None:
    for state in get_args(wire.TaskStateName):
        values.add("tfctl_task_state", state == task.state, *labels, state)
    values.add("tfctl_task_restarts_total", task.status.restarts, *labels)
    sample = task.status.sample
    if sample is None:
        return
    values.add("tfctl_task_step", sample.step, *labels)
    for figure in figures:
        values.add("tfctl_task_figure", (sample.figures or {}).get(figure), *labels, figure)
    if not task.alive:  # the last sample is older than its end
        return
    values.add("tfctl_task_steps_per_second", sample.pace, *labels)
    values.add("tfctl_task_examples_per_second", sample.rate, *labels)
    values.add("tfctl_task_cpu_cores", sample.cpu, *labels)
    values.add("tfctl_task_memory_bytes", _scaled(sample.memory, _MIB), *labels)
    values.add("tfctl_task_disk_read_bytes_per_second", sample.read, *labels)
    values.add("tfctl_task_disk_written_bytes_per_second", sample.written, *labels)
    values.add("tfctl_task_last_line_age_seconds", sample.silent, *labels)
    for uuid, gpu in zip(task.record.gpus, sample.gpus or (), strict=False):
        values.add("tfctl_task_gpu_use_ratio", _scaled(gpu.use, 0.01), *labels, uuid)
        values.add("tfctl_task_gpu_memory_bytes", _scaled(gpu.memory, _MIB), *labels, uuid)
        values.add("tfctl_task_gpu_temperature_celsius", gpu.celsius, *labels, uuid)
        values.add("tfctl_task_gpu_power_watts", gpu.watts, *labels, uuid)
        values.add("tfctl_task_gpu_clock_hertz", _scaled(gpu.mhz, 10**6), *labels, uuid)


def _figure_names(job: JobState) -> list[str]:
    """Return the names of the figures to report: the loss, and then as many others as are allowed."""
    samples = [task.status.sample for task in job.tasks]
    names = {name for sample in samples if sample for name in sample.figures or ()}
    return sorted(names, key=lambda name: (name != "loss", name))[:FIGURES]


def _add_host(values: _Values, host: Host, node: wire.Node) -> None:
    values.add("tfctl_host_load1", node.load, host.name)
    if node.memory_mib is not None:
        values.add("tfctl_host_memory_available_bytes", _scaled(node.memory_mib[1], _MIB), host.name)
    for disk in node.disks:
        values.add("tfctl_host_disk_free_bytes", _scaled(disk.free_mib, _MIB), host.name, disk.path)
    if node.gpu_trouble is None:
        defective = [gpu for gpu in node.gpus if gpu.defect]
        held = [gpu for gpu in node.gpus if gpu.holder and not gpu.defect]
        values.add("tfctl_host_gpus", len(node.gpus) - len(held) - len(defective), host.name, "free")
        values.add("tfctl_host_gpus", len(held), host.name, "held")
        values.add("tfctl_host_gpus", len(defective), host.name, "defective")
    missing = missing_count(host, node.gpu_cards, node.missing_gpus)
    values.add("tfctl_host_gpus", missing, host.name, "missing")


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
