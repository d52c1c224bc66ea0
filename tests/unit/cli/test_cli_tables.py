"""Every table fits a terminal of 80 columns, whatever the commands that print it have to show."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import make_record, make_state

from tests.unit.cli.terminal import use_terminal
from tfctl.cli import lab, nodes, prune, report, stacks, sweep, tables, text, verify
from tfctl.errors import Unreachable
from tfctl.jobs.events import Event
from tfctl.jobs.nodes import NodeState
from tfctl.jobs.past import PastJob
from tfctl.jobs.prune import Attempt
from tfctl.jobs.state import JobState, TaskState
from tfctl.lab.status import NodeStatus
from tfctl.local.cached import Cached
from tfctl.model.host import Host, Ssh
from tfctl.model.stacks import load
from tfctl.node import wire
from tfctl.report.figures import RunFigures, TaskFigures, compare
from tfctl.verify.report import Speed
from tfctl.verify.results import ProofResult, ProofResults

#: A name of 20 characters.
HOST = "gpu-node-17.example."
JOB = "resnet-50-imagenet-4"
PAST = 1.7e9


def _task(index: int, state: wire.TaskStateName, **reported: Any) -> TaskState:
    found = make_state("worker", index, HOST, state, restarts=2, started=PAST, finished=PAST + 3600, **reported)
    return replace(found, record=found.record._replace(address=HOST, port=12345))


SAMPLE = wire.TaskSample("worker", 0, percent=51.0, left=7000.0)
RUNNING = JobState(
    JOB, 12, "running", "", None, make_record(job=JOB, started=PAST), (make_state(host=HOST, sample=SAMPLE),)
)
PAST_JOB = PastJob(JOB, 3, "0123abcd", "failed", "multi_worker_mirrored", PAST, PAST + 7200, 128, 64, left=2)
NODE = wire.Node(
    protocol=2, version="0123456789ab", os="Debian GNU/Linux 12 (bookworm)", kernel="6.1.0-18-amd64", systemd=252,
    cpus=128, load=101.25, memory_mib=(1031690, 982345), stacks={"tf2.15": "tf2.15-0123456789"},
    gpus=tuple(wire.Gpu(f"GPU-{index}", index, "NVIDIA H100 80GB HBM3", 81559, f"job {JOB}, task worker/{index}",
                        "580.159.03") for index in range(8)),
    gpu_trouble=None, ports={2222: "a", 2230: "b"}, tasks=tuple(
        wire.RunningTask(job, "worker", index, "running") for index in range(8) for job in (JOB, "digits")),
    disks=(wire.Disk("/var/lib/tfctl/jobs", 1, 1834567, 3834567), wire.Disk("/srv/tfctl", 2, 834567, 3834567)),
    stored_mib=2048, drifts=("a", "b", "c"), missing_gpus=(wire.MissingGpu("0000:02:00.0", ""),),
    cards=(wire.Card("GPU-1", "NVIDIA H100 80GB HBM3", True, True, 12, 1980, 1980, 81, 698, ("1g.10gb",) * 7),),
)  # fmt: skip
SPEED = ProofResult(
    "all-reduce", (HOST, HOST), "failed", seconds=123.4, details=Speed(mb_per_s=1234.5, replicas=16, seconds=12.3)
)
FIGURES = RunFigures(
    "resnet-16", 1, "multi_worker_mirrored", "succeeded",
    (TaskFigures("worker", 10, HOST, "succeeded", True, 8, "timings", 1234.5, 123456, 1234567, 12.5, 12345.6, 12.3),),
)  # fmt: skip


#: Each table with values as large as real ones, and its columns that no terminal is too narrow for.
TABLES: dict[str, tuple[Callable[[], text.Rendered], list[str]]] = {
    "status": (
        lambda: tables.TASKS.render([
            _task(10, "failed", exit_code=137, oom=True),
            _task(11, "stopped", signal="SIGTERM", reason="chief/0 has succeeded"),
        ]),
        ["TASK", "HOST", "STATE", "EXIT", "REASON"],
    ),
    "status of a frozen task": (
        lambda: tables.TASKS.render([make_state("worker", 10, HOST, "running", last_line_age=7000.0)]),
        ["TASK", "HOST", "STATE", "EXIT", "LAST LINE"],
    ),
    "list": (
        lambda: tables.JOBS.render([PAST_JOB, RUNNING]),
        ["JOB", "STATE"],
    ),
    "events": (
        lambda: tables.EVENTS.render([
            Event(PAST, 12, "begin", "worker", 10, HOST),
            Event(PAST, 12, "end", "worker", 10, HOST, signal="SIGKILL", oom=True),
            Event(PAST, 12, "retry", host=HOST, reason="exit code 9; attempt 2 in 10 s"),
        ]),
        ["TIME", "TASK", "EVENT", "HOW"],
    ),
    "prune": (
        lambda: prune.ATTEMPTS.render(
            [Attempt(wire.AttemptName("a" * 40, 12, "0123abcd"), PAST, 1e6, (HOST,) * 64, 123456, False, 0)]
        ),
        ["JOB", "ATTEMPT", "SIZE"],
    ),
    "prune --cache": (
        lambda: prune.CACHE.render([Cached(Path("/c"), "requirements/0123456789ab", 123456, PAST)]),
        ["NAME", "SIZE"],
    ),
    "nodes": (
        lambda: nodes._HOSTS.render([
            NodeState(Host(HOST, Ssh(HOST)), NODE, "0"),
            NodeState(Host(HOST, Ssh(HOST)), None, "0", Unreachable(HOST)),
        ]),
        ["HOST", "STATE", "TROUBLE"],
    ),
    "GPUs of nodes": (lambda: nodes._GPUS.render([(HOST, gpu) for gpu in NODE.gpus]), ["HOST", "GPU", "HELD BY"]),
    "cards of nodes": (lambda: nodes._CARDS.render([(HOST, card) for card in NODE.cards]), ["HOST", "CARD", "ECC"]),
    "stacks": (lambda: stacks._STACKS.render(load().values()), ["STACK", "TENSORFLOW", "PYTHON"]),
    "verify": (
        lambda: verify._PROOFS.render([
            (result, ProofResults((SPEED,))) for result in (SPEED, replace(SPEED, hosts=(HOST,) * 3))
        ]),
        ["PROOF", "HOSTS", "STATE"],
    ),
    "lab status": (
        lambda: lab._NODES.render([NodeStatus("node1", "10.77.62.11", "bookworm", "running", 1, "/c")]),
        ["NODE", "ADDRESS", "SUITE", "STATE"],
    ),
    "sweep --dry-run": (
        lambda: sweep._PLAN.render([{
            "job": "resnet-1-multi-worker-mirrored",
            "settings": {"roles.worker.replicas": "1", "strategy": "multi_worker_mirrored"},
            "tasks": 128, "hosts": 64, "output": "/srv/tfctl/resnet-1-multi-worker-mirrored", "done": True,
        }]),
        ["JOB", "DONE"],
    ),
    "report": (
        lambda: report._tables(compare([FIGURES]), report.ReportFormat.text),
        ["RUN", "STATE", "EXAMPLES/S", "TASK", "HOST"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", TABLES)
def test_no_line_of_a_table_is_wider_than_the_terminal(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    render, essential = TABLES[name]
    use_terminal(monkeypatch, columns)
    lines = render().text.splitlines()
    assert [line for line in lines if len(line) > columns] == []
    headings = {word for line in lines for word in re.split("  +", line)}
    assert set(essential) <= headings
