"""What the tasks of a job use while it runs: read from the kernel and NVIDIA's library, kept by the guard, sent."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_system import fake_system
from node_tree import ACCOUNT, Tree, answers, as_guard, guarded, make_plan, make_task, sh, wait_until

from tfctl.node import names, samples, usage, wire
from tfctl.node.nvml import GpuReader
from tfctl.node.samples import PERIODS, Store
from tfctl.node.system import System

FAKES = Path(__file__).parents[2] / "fakes"
WORKER = ("worker", 0)


def cgroup(tree: Tree, place: str = "/sys/fs/cgroup", **files: str) -> Path:
    """Make the cgroup of the task worker/0 of the job digits, with these files."""
    folder = tree / (place + names.cgroup("digits", *WORKER))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


def process(tree: Tree, pid: int, *, ticks: int, pages: int, io: str | None) -> None:
    """Let the tree show a process as proc(5) describes it, whose name tries to confuse its reader."""
    folder = tree / f"proc/{pid}"
    folder.mkdir(parents=True)
    folder.joinpath("stat").write_text(f"{pid} (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 0 0 0\n")
    folder.joinpath("statm").write_text(f"{pages * 3} {pages + 7} 7 0 0 0 0\n")
    if io is not None:
        folder.joinpath("io").write_text(io)


def test_files_of_the_cgroup_say_what_a_task_uses_without_the_page_cache(tree: Tree) -> None:
    cgroup(
        tree, cgroup_procs="1\n", cpu_stat="usage_usec 2500000\nuser_usec 1\n",
        memory_stat=f"anon {3 << 20}\nfile {900 << 20}\nshmem {1 << 20}\n",
        io_stat="8:0 rbytes=1000 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2\n",
    )  # fmt: skip
    assert usage.of_task(System(prefix=str(tree.path)), "digits", WORKER) == usage.Usage(2.5, 4, 1001, 22)


@pytest.mark.parametrize("place", ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"])
def test_processes_are_added_up_where_the_cgroup_has_no_such_files(place: str, tree: Tree) -> None:
    cgroup(tree, place, cgroup_procs="7001\n7002\n7003\n")  # the last one has just ended
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    process(tree, 7001, ticks=3 * tick, pages=(2 << 20) // page, io="read_bytes: 10\nwrite_bytes: 1\n")
    process(tree, 7002, ticks=tick, pages=(1 << 20) // page, io="read_bytes: 5\nwrite_bytes: 2\n")
    assert usage.of_task(System(prefix=str(tree.path)), "digits", WORKER) == usage.Usage(4.0, 3, 15, 3)


def test_io_that_cannot_be_read_of_all_processes_is_unknown_and_not_zero(tree: Tree) -> None:
    cgroup(tree, cgroup_procs="7001\n")
    process(tree, 7001, ticks=1, pages=1, io=None)
    found = usage.of_task(System(prefix=str(tree.path)), "digits", WORKER)
    assert found and (found.read, found.written) == (None, None)


def test_a_task_without_processes_uses_nothing_that_is_known(tree: Tree) -> None:
    system = System(prefix=str(tree.path))
    assert usage.of_task(system, "digits", WORKER) is None
    cgroup(tree, cgroup_procs="")
    assert usage.of_task(system, "digits", WORKER) is None


def test_network_counts_cards_and_infiniband_but_neither_loopback_nor_bridges(tree: Tree) -> None:
    heading = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n"
    rows = {"lo": (9, 9), "eth0": (100, 7), "docker0": (50, 50)}
    lines = [f"{name:>6}: {got} 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n" for name, (got, sent) in rows.items()]
    (tree / "proc/net").mkdir(parents=True)
    (tree / "proc/net/dev").write_text(heading + "".join(lines))
    system = System(prefix=str(tree.path))
    assert usage.network(system) == (150, 57), "a container has no card"
    (tree / "sys/class/net/eth0/device").mkdir(parents=True)
    assert usage.network(system) == (100, 7)
    (tree / "sys/class/infiniband/mlx5_0/ports/1/counters").mkdir(parents=True)
    for name, count in (("port_rcv_data", 10), ("port_xmit_data", 20)):
        (tree / "sys/class/infiniband/mlx5_0/ports/1/counters" / name).write_text(f"{count}\n")
    assert usage.network(system) == (140, 87)


@pytest.fixture(scope="session")
def nvml() -> Iterator[Path]:
    """A fake of NVIDIA's library, which other users can load: they may not enter pytest's directories."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        library = Path(folder, "libnvidia-ml.so.1")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, FAKES / "fake_nvml.c"], check=True, timeout=60)
        yield library


class Gpus:
    """A reader of the fake GPUs, and the file that says how they are."""

    def __init__(self, reader: GpuReader, state: Path) -> None:
        self.reader, self.state = reader, state


@pytest.fixture
def gpus(nvml: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    state = tree / "gpus"
    monkeypatch.setenv("FAKE_NVML", str(state))
    system = System(account=ACCOUNT, guard=ACCOUNT, nvml=str(nvml))
    reader = GpuReader(system, ["GPU-0", "MIG-1", "GPU-unknown"])
    yield Gpus(reader, state)
    reader.close()


def test_readings_of_gpus_come_from_a_child_that_lives_on(gpus: Gpus) -> None:
    expected = {"GPU-0": wire.GpuSample(87, 40960, 61, 310, 1980), "MIG-1": wire.GpuSample(None, 40960)}
    assert gpus.reader.read() == expected
    child = gpus.reader._child
    assert (gpus.reader.read(), gpus.reader._child) == (expected, child)
    status = Path(f"/proc/{child}/status").read_text()
    if os.geteuid() == 0:
        assert "\nCapEff:\t0000000000000000\n" in status
        assert "\nUid:\t0\t" not in status
    opened = [str(path.readlink()).partition(":")[0] for path in Path(f"/proc/{child}/fd").iterdir()]
    assert opened.count("pipe") >= 2 and len(opened) <= 3, opened


def test_a_driver_that_hangs_delays_a_sample_by_two_seconds_and_is_asked_again_after_a_minute(gpus: Gpus) -> None:
    gpus.reader.read()
    child = gpus.reader._child
    gpus.state.write_text("hangs\n")
    began = time.monotonic()
    assert gpus.reader.read() == {}
    assert 1.9 < time.monotonic() - began < 4
    wait_until(lambda: not Path(f"/proc/{child}").exists())
    gpus.state.write_text("")
    began = time.monotonic()
    assert gpus.reader.read() == {}
    assert time.monotonic() - began < 0.5
    gpus.reader._started -= 60
    assert gpus.reader.read()["GPU-0"].use == 87


@pytest.mark.parametrize("state", ["lost", "missing"])
def test_gpus_that_do_not_answer_have_no_readings(state: str, gpus: Gpus) -> None:
    gpus.state.write_text(state)
    assert not any(any(one) for one in gpus.reader.read().values())


def test_a_host_without_the_library_has_no_readings(tree: Tree) -> None:
    reader = GpuReader(System(account=ACCOUNT, guard=ACCOUNT, nvml=str(tree / "missing.so")), ["GPU-0"])
    assert reader.read() == {}
    reader.close()


def sample(at: float, **task: Any) -> wire.Sample:
    return wire.Sample(at, 10, 20, (wire.TaskSample(*WORKER, **task),))


def test_samples_become_rarer_with_their_age(tree: Tree) -> None:
    """A week of one task, whose GPU and curves are known, takes half a megabyte."""
    folder = tree / names.samples_dir("digits", 1)
    folder.parent.mkdir(parents=True)
    store, began, now = Store(folder), 1.7e9, 1.7e9
    gpu = wire.GpuSample(98, 40213, 61, 310, 1980)
    while now < began + 7 * 86400:
        now += 10
        step = int(now - began)
        store.add(
            sample(
                now, cpu=1.25, memory=2812, read=1200, written=34567, silent=3.2, step=step, total=700000,
                epoch=step // 1000, percent=round(step / 7000, 1), left=12345.6, rate=512.4, pace=1.602,
                figures={"loss": wire.Figure(0.31234), "accuracy": wire.Figure(0.876)}, gpus=(gpu,),
            )
        )  # fmt: skip
    found = samples.read(System(prefix=str(tree.path)), "digits", 1)
    times = [each.time for each in found]
    assert times == sorted(times) and times[-1] == now
    assert sum(1 for time in times if time > now - 3600) == 360
    assert sum(1 for time in times if time > now - 86400) == pytest.approx(360 + 1380, rel=0.03)
    gaps = [round(after - before) for before, after in itertools.pairwise(times)]
    assert max(gaps) <= 600 and len(found) == pytest.approx(360 + 1380 + 6 * 24 * 6, rel=0.1)
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < 550_000, size
    recent = samples.read(System(prefix=str(tree.path)), "digits", 1, since=now - 30)
    assert [each.time for each in recent] == [now - 20, now - 10, now]


def test_the_mean_of_samples_keeps_the_last_of_what_counts() -> None:
    first = sample(10, cpu=1.0, memory=100, step=5, figures={"loss": wire.Figure(2.0)}, gpus=(wire.GpuSample(50, 10),))
    last = sample(20, cpu=2.0, step=9, figures={"loss": wire.Figure(1.0)}, gpus=(wire.GpuSample(100, None),))
    [task] = samples.mean([first, last]).tasks
    assert (task.cpu, task.memory, task.step, task.figures) == (1.5, 100, 9, {"loss": 1.0})
    assert task.gpus == (wire.GpuSample(75, 10),)


def test_what_the_guards_user_writes_into_its_files_is_no_sample(tree: Tree) -> None:
    folder = tree / names.samples_dir("digits", 1)
    folder.mkdir(parents=True)
    lines = [json.dumps(wire.encode(sample(5.0))), "x", "[1]", "[" * 5000, "[1e400,1,1,[]]", '{"time": 1}', "[null,2]"]
    for period in PERIODS:
        (folder / f"{period.name}.jsonl").write_text("\n".join(lines) + "\n")
    found = samples.read(System(prefix=str(tree.path)), "digits", 1)
    assert sample(5.0) in found and all(math.isfinite(each.time) for each in found)


def test_a_store_goes_on_after_the_guard_was_started_again(tree: Tree) -> None:
    folder = tree / names.samples_dir("digits", 1)
    folder.parent.mkdir(parents=True)
    for at in (10, 20):
        Store(folder).add(sample(at))
    assert [each.time for each in samples.read(System(prefix=str(tree.path)), "digits", 1)] == [10, 20]


PRINTS = "for n in 1 2 3; do echo step $n of 10; done; sleep 600"


def test_guard_is_told_what_its_tasks_use_and_print(tree: Tree) -> None:
    plan = guarded()
    plan["tasks"] = [make_task(command=sh(PRINTS))]
    plan["record"]["progress"] = r"step (?P<step>\d+) of (?P<total>\d+)"
    cgroup(tree, cgroup_procs="1\n", cpu_stat="usage_usec 1000000\n", memory_stat=f"anon {5 << 20}\n", io_stat="")
    tree.run(plan)
    with as_guard(tree, "sample") as session:
        first = session.expect("sampled")
    found = wire.decode(wire.Sampled, first)
    [task] = found.sample.tasks
    assert (found.attempt, task.step, task.total, task.percent) == (1, 3, 10, 30.0)
    assert (task.memory, task.cpu) == (5, 0.0)
    assert task.silent is not None and task.silent < 60


def test_only_the_guard_may_ask_for_samples_of_its_job(tree: Tree) -> None:
    tree.run(guarded())
    with as_guard(tree, "sample", names.guard_service("other")) as session:
        assert session.expect("error")["exit"] == 2


def test_a_guard_keeps_samples_that_clients_read_also_after_the_end(tree: Tree) -> None:
    for name in ("guards", "samples"):
        (tree / name).touch()
    tree.run(guarded())
    system = fake_system(str(tree.path), ACCOUNT, 30.0)
    wait_until(lambda: samples.last(system, "digits", 1) is not None)
    with tree.session("samples", job="digits", attempt=None, since=None, follow=False) as session:
        [(kind, found)] = session.rest()
    assert (kind, found["last"], found["attempt"], len(found["samples"])) == ("samples", True, 1, 1)
    [shown] = tree.ask("show", job="digits", samples=True)["jobs"]
    assert shown["tasks"][0]["sample"][:2] == ["worker", 0]
    tree.ask("stop", job="digits", attempt=1, tasks=None)
    [kept] = [one for one in answers(tree, wire.SamplesRequest("digits")) if isinstance(one, wire.Samples)]
    assert [task.name for task in kept.samples[0].tasks] == [WORKER]


def test_samples_of_a_job_that_was_started_without_a_guard_are_none(tree: Tree) -> None:
    tree.run(make_plan(make_task()))
    [found] = answers(tree, wire.SamplesRequest("digits"))
    assert isinstance(found, wire.Samples) and (found.samples, found.last) == ((), True)
