"""The metrics that follow from what hosts have answered."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from records import make_record

from tfctl.errors import Unreachable
from tfctl.jobs.metrics import Scrape
from tfctl.jobs.past import PastJob
from tfctl.jobs.prometheus import FIGURES, METRICS, text
from tfctl.jobs.state import JobState, jobs
from tfctl.model.host import Host, Ssh
from tfctl.node import wire

DOCS = Path(__file__).parents[3] / "docs"
#: What a host may send as the name of something: it must not become another metric.
EVIL = 'loss"} 7\ntfctl_host_up{host="forged\\'
WORKER = {"job": "digits", "role": "worker", "index": "0", "host": "node1"}
GPU = {**WORKER, "gpu": "GPU-1"}
SAMPLE = wire.TaskSample(
    "worker", 0, cpu=1.5, memory=512, read=1000, written=2000, silent=2.5, step=30, total=120, epoch=1, percent=25.0,
    left=90.0, rate=64.0, pace=2.0, figures={"loss": wire.Figure(-0.5)},
    gpus=(wire.GpuSample(87, 1024, 61, 310, 1980),),
)  # fmt: skip


def values(scrape: Scrape) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of each metric as Prometheus parses them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text(scrape)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def running(
    sample: wire.TaskSample | None = SAMPLE, state: wire.TaskStateName = "running", finished: float | None = None
) -> JobState:
    record = make_record(started=100.0)
    record = record._replace(tasks=(record.tasks[0]._replace(gpus=("GPU-1",)),))
    status = wire.TaskStatus(
        "worker", 0, state, exit_code=None, signal=None, started=101.0, finished=finished, restarts=2, sample=sample
    )
    return jobs({"node1": [wire.JobStatus("digits", 1, record.run, record, None, (status,))]})[0]


def figures(*names: str) -> dict[str, wire.Figure]:
    return dict.fromkeys(names, wire.Figure(1.0))


def a_host(gpus_expected: int = 0) -> Host:
    return Host("node1", Ssh("node1"), gpus_expected=gpus_expected)


def a_node(**more: object) -> wire.Node:
    gpus = (
        wire.Gpu("GPU-1", 0, "L4", 23034, "job digits, task worker/0"),
        wire.Gpu("GPU-2", 1, "L4", 23034, ""),
        wire.Gpu("GPU-3", 2, "L4", 23034, "", defect="its memory is defective"),
    )
    node = wire.Node(
        wire.PROTOCOL, "1", "Debian 12", "6.1", 252, 8, 1.25, (2048, 1024), {}, gpus, None, {}, (),
        disks=(wire.Disk("/var/lib/tfctl/jobs", 1, 100, 200),), gpu_cards=3,
        missing_gpus=(wire.MissingGpu("0000:0a:00.0", ""),),
    )  # fmt: skip
    return node._replace(**more)  # type: ignore[arg-type]


def test_metrics_of_a_running_job_have_base_units() -> None:
    found = values(Scrape([running()], [], time=200.0))
    assert found["tfctl_job_info"] == [({"job": "digits", "strategy": "custom"}, 1)]
    assert [labels["state"] for labels, value in found["tfctl_job_state"] if value] == ["running"]
    assert {name: found[name] for name in found if name.startswith("tfctl_job_") and len(found[name]) == 1} == {
        name: [({"job": "digits", **more}, value)]
        for name, value, more in (
            ("tfctl_job_info", 1, {"strategy": "custom"}),
            ("tfctl_job_attempt", 1, {}),
            ("tfctl_job_start_time_seconds", 100, {}),
            ("tfctl_job_step", 30, {}),
            ("tfctl_job_planned_steps", 120, {}),
            ("tfctl_job_epoch", 1, {}),
            ("tfctl_job_progress_ratio", 0.25, {}),
            ("tfctl_job_examples_per_second", 64, {}),
            ("tfctl_job_remaining_seconds", 90, {}),
        )
    }
    assert [labels["state"] for labels, value in found["tfctl_task_state"] if value] == ["running"]
    assert found["tfctl_task_figure"] == [({**WORKER, "figure": "loss"}, -0.5)]
    for name, value in (
        ("restarts_total", 2), ("step", 30), ("steps_per_second", 2), ("examples_per_second", 64), ("cpu_cores", 1.5),
        ("memory_bytes", 2**29), ("disk_read_bytes_per_second", 1000), ("disk_written_bytes_per_second", 2000),
        ("last_line_age_seconds", 2.5),
    ):  # fmt: skip
        assert found[f"tfctl_task_{name}"] == [(WORKER, value)]
    for name, value in (
        ("use_ratio", 0.87), ("memory_bytes", 2**30), ("temperature_celsius", 61), ("power_watts", 310),
        ("clock_hertz", 1.98e9),
    ):  # fmt: skip
        assert found[f"tfctl_task_gpu_{name}"] == [(GPU, value)]


def test_metrics_of_a_host_count_its_gpus_once() -> None:
    found = values(Scrape([], [(a_host(), a_node()), (Host("node2", Ssh("node2")), None)], [Unreachable("x")], 0, 1.5))
    assert found["tfctl_host_up"] == [({"host": "node1"}, 1), ({"host": "node2"}, 0)]
    assert found["tfctl_host_load1"] == [({"host": "node1"}, 1.25)]
    assert found["tfctl_host_memory_available_bytes"] == [({"host": "node1"}, 2**30)]
    assert found["tfctl_host_disk_free_bytes"] == [({"host": "node1", "path": "/var/lib/tfctl/jobs"}, 100 * 2**20)]
    assert {labels["state"]: value for labels, value in found["tfctl_host_gpus"]} == dict.fromkeys(
        ("free", "held", "defective", "missing"), 1
    )
    assert found["tfctl_scrape_duration_seconds"] == [({}, 1.5)]
    assert found["tfctl_scrape_errors"] == [({}, 1)]


@pytest.mark.parametrize(("expected", "cards", "missing"), [(0, 3, 1), (2, 3, 0), (8, 3, 5), (8, None, 0)])
def test_gpus_are_missing_by_what_the_inventory_expects(expected: int, cards: int | None, missing: int) -> None:
    scrape = Scrape([], [(a_host(expected), a_node(gpu_cards=cards))])
    assert ({"host": "node1", "state": "missing"}, missing) in values(scrape)["tfctl_host_gpus"]


def test_gpus_that_cannot_be_listed_are_not_counted() -> None:
    trouble = wire.Error(8, "nvidia-smi fails")
    found = values(Scrape([], [(a_host(), a_node(gpus=(), gpu_trouble=trouble))]))["tfctl_host_gpus"]
    assert [labels["state"] for labels, _ in found] == ["missing"]


def test_names_that_a_host_has_chosen_stay_values_of_one_label_and_are_limited() -> None:
    many = figures(*(f"{EVIL}{number}" for number in range(50)), "loss")
    node = a_node(disks=(wire.Disk(EVIL, 1, 1, 1), wire.Disk(EVIL, 1, 2, 2)))
    found = values(Scrape([running(SAMPLE._replace(figures=many))], [(a_host(), node)]))
    shown = found["tfctl_task_figure"]
    assert len(shown) == FIGURES and ({**WORKER, "figure": "loss"}, 1.0) in shown
    assert all(set(labels) == {*WORKER, "figure"} and labels["figure"].isprintable() for labels, _ in shown)
    assert found["tfctl_host_up"] == [({"host": "node1"}, 1)]
    [(labels, value)] = found["tfctl_host_disk_free_bytes"]
    assert labels == {"host": "node1", "path": EVIL.replace("\n", "?")} and value == 2**20
    printed = text(Scrape([running(SAMPLE._replace(figures=figures("x\u2028", "x\n", "y" * 999)))], []))
    assert printed.count('figure="x?"') == 1 and "y" * 200 not in printed


def test_a_task_that_has_ended_uses_nothing() -> None:
    found = values(Scrape([running(state="succeeded", finished=150.0)], [], time=200.0))
    assert found["tfctl_task_step"] == [(WORKER, 30)] and "tfctl_task_figure" in found
    assert not {"tfctl_task_cpu_cores", "tfctl_task_gpu_use_ratio", "tfctl_job_remaining_seconds"} & set(found)


def test_a_job_without_samples_has_states_only() -> None:
    found = values(Scrape([running(sample=None)], []))
    assert "tfctl_task_state" in found and "tfctl_job_step" not in found and "tfctl_task_step" not in found


def test_a_job_that_is_over_is_reported_for_a_day() -> None:
    over = PastJob("digits", 3, "0123abcd", "failed", "custom", 100.0, 200.0, 2, 2)
    found = values(Scrape([over], [], time=200 + 86399.0))
    assert [labels["state"] for labels, value in found["tfctl_job_state"] if value] == ["failed"]
    assert "tfctl_job_info" not in values(Scrape([over], [], time=200 + 86401.0))


def test_each_metric_is_exported_once_with_a_help_text_and_a_suffix_for_counters() -> None:
    names = [each.name for each in METRICS]
    assert len(set(names)) == len(names)
    shown = text(Scrape([running()], [(a_host(), a_node())]))
    for each in METRICS:
        assert f"# HELP {each.name} {each.help}\n# TYPE {each.name} {each.kind}\n{each.name}" in shown
        assert (each.kind == "counter") == each.name.endswith("_total")


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\btfctl_\w+", expression))


def test_dashboard_and_guide_name_only_metrics_and_labels_that_are_exported() -> None:
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    expressions += [variable.get("definition", "") for variable in dashboard["templating"]["list"]]
    exported = {each.name: {*each.labels} for each in METRICS}
    used = set().union(*map(names_in, expressions))
    assert used <= set(exported)
    assert set(exported) - used == {"tfctl_job_attempt", "tfctl_job_epoch", "tfctl_task_step",
                                    "tfctl_task_steps_per_second", "tfctl_task_examples_per_second"}  # fmt: skip
    for name, selector in re.findall(r"\b(tfctl_\w+)\{([^}]*)\}", "\n".join(expressions)):
        assert set(re.findall(r"(\w+)[=!]~?\"", selector)) <= exported[name], name
    assert names_in((DOCS / "howto/monitoring.md").read_text()) <= set(exported)


def test_dashboard_has_legends_of_labels_that_its_metrics_have() -> None:
    for panel in json.loads((DOCS / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            labels = set().union(*({*each.labels} for each in METRICS if each.name in names_in(target["expr"])))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, panel["title"]
