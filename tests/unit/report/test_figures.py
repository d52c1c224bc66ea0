"""The figures of runs: spread, speed-up and efficiency, and what they point to."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from tfctl.report import table
from tfctl.report.figures import RunFigures, TaskFigures, compare, spread, task_figures, throughput
from tfctl.report.findings import findings
from tfctl.report.pace import Pace


def run(
    job: str,
    *seconds: float | None,
    hosts: int = 1,
    gpus: int = 1,
    rates: tuple[float | None, ...] = (),
    **more: object,
) -> RunFigures:
    """Return a run whose workers, dealt over the hosts, have taken these times."""
    given = rates or [None] * len(seconds)
    tasks = tuple(
        TaskFigures(
            "worker", index, f"node{index % hosts + 1}", "succeeded", gpus=gpus, seconds=took, examples_per_second=rate
        )
        for index, (took, rate) in enumerate(zip(seconds, given, strict=True))
    )
    return replace(RunFigures(job, 1, "horovod", "succeeded", tasks, sum(rates) or None), **more)  # type: ignore[arg-type]


#: Published times of an epoch: one GPU, four on one host, and 16 on four hosts with Horovod.
PUBLISHED = (
    run("sixteen", *[897.0] * 16, hosts=4),
    run("one", 7299.0),
    run("four", 2143.0, gpus=4, strategy="mirrored"),
)


def test_report_has_the_speed_ups_of_the_published_table() -> None:
    report = compare(PUBLISHED)
    assert report.basis == "seconds"
    found = [
        (each.run.job, each.run.hosts, each.run.devices, round(each.speed_up or 0, 1), round(each.efficiency or 0, 2))
        for each in report.runs
    ]
    assert found == [("one", 1, 1, 1.0, 1.0), ("four", 1, 4, 3.4, 0.85), ("sixteen", 4, 16, 8.1, 0.51)]


def test_report_finds_the_network_where_only_several_hosts_waste_devices() -> None:
    [found] = findings(compare(PUBLISHED))
    assert (found.cause, found.run) == ("network", "sixteen")
    assert found.why.startswith("the efficiency is 51% on 4 hosts, 85% on one")
    assert "shared storage can also be the cause" in found.why
    good = run("good", *[500.0] * 16, hosts=4)
    assert findings(compare([*PUBLISHED[1:], good])) == ()


def test_slow_devices_of_one_host_are_not_blamed_on_the_network() -> None:
    alone = run("alone", 4000.0, gpus=4)
    many = run("many", *[1100.0] * 16, hosts=4)
    assert findings(compare([PUBLISHED[1], alone, many])) == ()


def test_network_is_not_compared_with_a_host_that_has_fewer_devices() -> None:
    """What 16 devices on four hosts lose may be lost within a host: the run on one host has a single device."""
    sixteen, one, four = PUBLISHED
    [found] = findings(compare([sixteen, one]))
    assert found.why.startswith(
        "the efficiency is 51% on 4 hosts, 100% on one with 1 device, so it is not known what is lost within a host; "
    )
    assert found.check.startswith("run one host with 4 devices; ")
    [known] = findings(compare(PUBLISHED))
    assert "not known what is lost" not in known.why and known.check.startswith("measure the network")
    eight = run("eight", 1600.0, gpus=8)
    [like] = findings(compare([*PUBLISHED, eight]))
    assert "85% on one;" in like.why, "of the runs on one host, it is that with as many devices as each host has"
    tasks = run("tasks", *[897.0] * 16, hosts=4, gpus=0)
    assert (tasks.devices_per_host, sixteen.devices_per_host, four.devices_per_host) == (4, 4, 4)


def test_spread_relates_the_range_to_the_mean() -> None:
    found = spread([700.0, None, 800.0, 900.0])
    assert found is not None
    assert (found.mean, found.minimum, found.maximum, found.spread) == (800.0, 700.0, 900.0, 0.25)
    assert spread([700.0, None]) is None


def test_throughput_is_compared_where_all_runs_have_it() -> None:
    """Runs that take a fixed time differ in their throughput alone."""
    report = compare([run("two", 60.0, 60.0, rates=(90.0, 90.0)), run("one", 60.0, rates=(100.0,))])
    assert report.basis == "examples_per_second"
    assert [each.speed_up for each in report.runs] == [1.0, 1.8]
    assert [each.efficiency for each in report.runs] == [1.0, 0.9]


@pytest.mark.parametrize(
    "other",
    [
        run("two", None, None),
        run("two", 60.0, 60.0, state="failed"),
        run("two", 60.0, 60.0, continues=True),
        run("none"),
    ],
)
def test_nothing_is_compared_with_a_run_that_has_no_result(other: RunFigures) -> None:
    report = compare([run("one", 60.0), other])
    assert (report.basis, [each.speed_up for each in report.runs]) == (None, [None, None])


def test_the_slowest_task_is_named_as_a_straggler() -> None:
    slow = run("slow", *[100.0] * 4, hosts=2, rates=(100.0, 98.0, 99.0, 60.0))
    [found] = findings(compare([slow]))
    assert found.cause == "straggler"
    assert found.why == (
        "worker/3 on node2 has 60 examples/s, half of the tasks have 98 examples/s or better; the spread is 45%"
    )
    assert "node2" in found.check
    by_time = run("by-time", 779.0, 700.0, 720.0, 1008.0)
    assert [each.cause for each in findings(compare([by_time]))] == ["straggler"]
    one_is_faster = run("fast", *[100.0] * 4, rates=(98.0, 99.0, 100.0, 140.0))
    assert findings(compare([one_is_faster])) == ()


def waiting(*parts: float | None, rate: float = 20.0) -> RunFigures:
    found = run("waits", *[100.0] * len(parts))
    tasks = tuple(
        replace(task, input_wait=part, steps_per_second=rate) for task, part in zip(found.tasks, parts, strict=True)
    )
    return replace(found, tasks=tasks)


def test_tasks_that_wait_for_batches_point_to_the_input() -> None:
    [all_of_them] = findings(compare([waiting(0.4, 0.5)]))
    assert (all_of_them.cause, all_of_them.why) == (
        "input pipeline", "2 tasks wait 45% of the time for their next batches"
    )  # fmt: skip
    [one] = findings(compare([waiting(0.01, 0.5, 0.02)]))
    assert one.why == "worker/1 on node1 waits 50% of the time for its next batch, and 2 other tasks do not"
    assert findings(compare([waiting(0.05, 0.01)])) == ()


def test_short_waits_of_short_steps_are_no_finding() -> None:
    """Half of a step of 1 ms is what Keras itself takes."""
    assert findings(compare([waiting(0.5, 0.5, rate=1000.0)])) == ()


def test_throughput_is_the_sum_only_of_tasks_that_all_have_a_rate() -> None:
    def rate(number: float | None, **more: object) -> Pace:
        return replace(Pace("log", examples_per_second=number), **more)  # type: ignore[arg-type]

    two = ["worker/0", "worker/1"]
    assert throughput({"worker/0": rate(10.0), "worker/1": rate(12.0)}, two, leads=False) == 22.0
    assert throughput({"worker/0": rate(10.0), "worker/1": None}, two, leads=False) is None
    assert throughput({"chief/0": rate(50.0), "worker/0": None, "worker/1": None}, two, leads=True) == 50.0
    # Horovod's first rank prints the rate of one GPU, and at the end that of all.
    first = rate(10.0, leader_only=True)
    assert throughput({"worker/0": first}, two[:1], leads=False) is None
    assert throughput({"worker/0": replace(first, total=40.0), "worker/1": None}, two, leads=False) == 40.0


def test_the_time_of_a_run_is_that_of_the_chief_if_it_alone_records_it() -> None:
    chief = task_figures(
        "chief", 0, "node1", "succeeded", run_time=70.0, pace=Pace("timings", seconds=60.0), computes=False
    )
    worker = task_figures("worker", 0, "node1", "stopped", run_time=75.0)
    found = RunFigures("ps", 1, "parameter_server", "succeeded", (chief, worker))
    assert (found.seconds, found.devices) == (60.0, 1)


def test_the_time_of_a_restarted_task_includes_its_runs_before() -> None:
    """The last one may have resumed, and trained for a part of the epochs only."""
    pace = Pace("timings", seconds=60.0, examples_per_second=50.0)
    found = task_figures("worker", 0, "node1", "succeeded", run_time=300.0, pace=pace, restarts=1)
    assert (found.source, found.seconds, found.examples_per_second) == ("timings", 300.0, 50.0)
    report = compare(
        [run("one", 600.0), RunFigures("two", 1, "horovod", "succeeded", (found, replace(found, index=1)))]
    )
    assert (report.basis, report.runs[1].speed_up) == ("seconds", 2.0)


def test_tables_have_a_row_for_each_run_and_task() -> None:
    report = compare(PUBLISHED)
    rows = table.run_rows(report)
    assert [row[0] for row in rows] == ["RUN", "one", "four", "sixteen"]
    assert dict(zip(rows[0], rows[3], strict=True)) == {
        "RUN": "sixteen", "STRATEGY": "horovod", "STATE": "succeeded", "HOSTS": "4", "DEVICES": "16", "SECONDS": "897",
        "EXAMPLES/S": "", "MEAN": "897", "MIN": "897", "MAX": "897", "SPREAD": "0%", "SPEED-UP": "8.14",
        "EFFICIENCY": "51%",
    }  # fmt: skip
    tasks = table.task_rows(run("by-time", 779.0, 1008.0))
    assert [row[0] for row in tasks] == ["TASK", "worker/0", "worker/1", "mean", "minimum", "maximum", "spread"]
    assert tasks[-1][3] == "26%"
    assert table.markdown(rows).splitlines()[:2] == [
        "| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0]),
    ]  # fmt: skip


def test_json_and_csv_have_the_figures_unrounded() -> None:
    report = compare(PUBLISHED)
    found = table.json_object(report)
    assert found["runs"][2]["speed_up"] == 7299 / 897
    seconds = found["runs"][2]["spread"]["seconds"]
    assert seconds and seconds["mean"] == 897.0
    assert found["findings"][0]["cause"] == "network"
    lines = list(csv.DictReader(io.StringIO(table.csv_text(report))))
    assert len(lines) == 18
    assert (lines[1]["run_job"], lines[1]["run_speed_up"], lines[1]["seconds"]) == ("four", str(7299 / 2143), "2143.0")
