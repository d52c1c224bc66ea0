"""What is known of a job while it runs: progress, what its tasks use, and what it costs to know it. With a fake of
NVIDIA's library; everything else is real."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.jobs import Jobs
from tests.lab.test_gpus_of_jobs import DIVIDED, install

FAKES = Path(__file__).parents[1] / "fakes"
#: Prints a step each half second, and computes all the time.
STEPS = "for n in $(seq 1 400); do echo step $n of 400 loss=-0.$n; timeout 0.5 sh -c 'while :; do :; done'; done"
PATTERN = r"progress: 'step (?P<step>\d+) of (?P<total>\d+) loss=(?P<loss>\S+)'"
#: Of the guard and its sessions as root: CPU time (us), then for each process its PSS (kB) and its command.
COST = """cd /sys/fs/cgroup/system.slice
cat tfctlguard-{0}.service/cpu.stat tfctlguardroot-{0}@*/cpu.stat | grep usage_usec
for pid in $(cat tfctlguard-{0}.service/cgroup.procs tfctlguardroot-{0}@*/cgroup.procs)
do echo pss $(awk '/^Pss:/ {{print $2}}' /proc/$pid/smaps_rollup) $(tr '\\0' ' ' < /proc/$pid/cmdline); done"""


def until(condition: Callable[[], Any], within: float = 60) -> Any:
    """Return what the condition returns, once that is something."""
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {within} s"
        time.sleep(1)
    return found


def left_of(jobs: Jobs, name: str) -> float | None:
    """Return how many seconds the job is said to take."""
    progress: dict[str, float | None] | None = jobs.status(name)["progress"]
    return progress["left_s"] if progress else None


@pytest.fixture
def gpus(jobs: Jobs, tmp_path: Path) -> Iterator[Jobs]:
    """node1 has seven GPUs by its fake nvidia-smi, and a fake of the library that reads them."""
    install(jobs, "node1", DIVIDED)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, FAKES / "fake_nvml.c"], check=True, timeout=60)
    text = base64.b64encode(library.read_bytes()).decode()
    jobs.root("node1", f"echo {text} | base64 -d > /usr/lib/libnvidia-ml.so.1; ldconfig")
    yield jobs
    jobs.root("node1", "rm -f /usr/bin/nvidia-smi /usr/lib/libnvidia-ml.so.1; umount /sys/bus/pci/devices; "
              "rm -r /run/stub; ldconfig")  # fmt: skip


def test_status_list_and_wait_say_how_far_a_job_is(jobs: Jobs) -> None:
    path = jobs.file("far", f"command: [sh, -c, {json.dumps(STEPS)}]\n{PATTERN}\nroles: {{worker: 2}}\n")
    jobs.ok("start", path)
    found = until(lambda: jobs.status("far")["progress"])
    assert (found["total"], found["epoch"], found["rate"]) == (400, None, None)
    assert 0 < found["step"] < 400 and found["percent"] == pytest.approx(found["step"] / 4, abs=0.1)
    found = until(lambda: left_of(jobs, "far"))
    assert 10 < found < 2000
    head = jobs.ok("status", "far").splitlines()[1]
    assert head.startswith("  step ") and " of 400, " in head and head.endswith(" left"), head
    [row] = [line for line in jobs.ok("list").splitlines() if line.startswith("far ")]
    assert " %, " in row and " left " in row
    jobs.ok("stop", "far", "--now")
    assert jobs.status("far")["progress"]["left_s"] is None, "it has ended"


def test_what_tasks_and_their_gpus_use_is_kept_and_costs_little(gpus: Jobs) -> None:
    """Of one core, less than a hundredth for eight tasks on a host; the guard less than 30 MB, all less than 60."""
    roles = "{worker: {per_host: 7, hosts: node1, gpus: 1}, cpu: {per_host: 1, hosts: node1, gpus: 0}}"
    line = "while :; do echo still here; sleep 5; done"
    gpus.ok("start", gpus.file("costs", f"command: [sh, -c, {json.dumps(line)}]\nroles: {roles}\n"))
    folder = "/var/lib/tfctl/jobs/costs/1/guard/samples/10s.jsonl"
    until(lambda: len(gpus.root("node1", f"cat {folder} 2>/dev/null || :").splitlines()) >= 2)
    last = json.loads(gpus.root("node1", f"tail -n 1 {folder}"))
    tasks = {(task[0], task[1]): task for task in last[3]}
    assert len(tasks) == 8 and last[1] is not None
    whole = [task[16] for task in tasks.values() if len(task) > 16 and task[16][0][0] == 87]
    assert len(whole) == 3 and whole[0] == [[87, 40960, 61, 310, 1980]]
    assert all(task[3] < 100 and task[6] < 30 for task in tasks.values())

    def cost() -> tuple[int, dict[str, int]]:
        lines = [line.split(None, 2) for line in gpus.root("node1", COST.format("costs")).splitlines()]
        used = sum(int(words[1]) for words in lines if words[0] == "usage_usec")
        return used, {words[2]: int(words[1]) for words in lines if words[0] == "pss"}

    before, began = cost()[0], time.monotonic()
    time.sleep(60)
    (after, memory), passed = cost(), time.monotonic() - began
    share = (after - before) / 1e6 / passed
    print(f"eight tasks, seven GPUs: {share:.2%} of a core; PSS in kB: {memory}")
    guard = next(size for command, size in memory.items() if " run " in command)
    assert share < 0.01
    assert guard < 30_000 and sum(memory.values()) < 60_000, memory


def test_samples_go_on_with_the_next_attempt_and_stay_after_the_end(jobs: Jobs) -> None:
    path = jobs.file(
        "again",
        "command: [sh, -c, 'sleep 20; exit 1']\npolicy: {max_attempts: 2, max_restarts: 0}\n"
        "roles: {worker: {replicas: 1, hosts: node1}}\n",
    )
    jobs("start", path, "--wait", timeout=180)
    for attempt in (1, 2):
        kept = jobs.root("node1", f"cat /var/lib/tfctl/jobs/again/{attempt}/guard/samples/10s.jsonl").splitlines()
        assert 1 <= len(kept) <= 4, attempt
