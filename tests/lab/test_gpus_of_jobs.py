"""How tasks get GPUs, on nodes with a fake nvidia-smi that prints recorded answers; the tasks are shell commands."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.jobs import Jobs, lines_of_task

TESTS = Path(__file__).parents[1]
RECORDED: dict[str, dict[str, Any]] = yaml.safe_load((TESTS / "unit/node/nvidia_smi.yaml").read_text())
DIVIDED = RECORDED["Four A100, the first one in MIG instances, driver 535.54.03"]
SICK = RECORDED["The driver was upgraded under the kernel"]
MIG = [device[1] for device in DIVIDED["devices"][:4]]
WHOLE = [device[1] for device in DIVIDED["devices"][4:]]
#: Creates a GPU on the PCI bus, as a kernel shows it.
BUS = """card=/run/stub/pci/0000:17:00.0; mkdir -p $card; echo 0x10de > $card/vendor; echo 0x030200 > $card/class
echo 0x20b0 > $card/device
mountpoint -q /sys/bus/pci/devices || mount --bind /run/stub/pci /sys/bus/pci/devices"""
#: A task that keeps running and prints which devices it sees.
STAY = "command: [sh, -c, 'echo sees $CUDA_VISIBLE_DEVICES by $CUDA_DEVICE_ORDER; sleep 60']\n"


def install(jobs: Jobs, node: str, recording: dict[str, Any]) -> None:
    program = '#!/bin/sh\nexec python3 -S /run/stub/smi.py /run/stub/smi.json "$@"\n'
    files = {
        "/run/stub/smi.py": (TESTS / "fakes/fake_nvidia_smi.py").read_text(),
        "/run/stub/smi.json": json.dumps(recording),
        "/usr/bin/nvidia-smi": program,
    }
    lines = [f"echo {base64.b64encode(text.encode()).decode()} | base64 -d > {path}" for path, text in files.items()]
    jobs.root(node, "\n".join([BUS, *lines, "chmod +x /usr/bin/nvidia-smi"]))


@pytest.fixture
def gpus(jobs: Jobs) -> Iterator[Jobs]:
    """node1 has one A100 divided by MIG and three undivided ones; the driver of node2 does not work."""
    install(jobs, "node1", DIVIDED)
    install(jobs, "node2", SICK)
    yield jobs
    for node in ("node1", "node2"):
        jobs.root(node, "rm -f /usr/bin/nvidia-smi; umount /sys/bus/pci/devices; rm -r /run/stub")


def visible_devices(jobs: Jobs, job: str) -> dict[str, str]:
    """Return the devices that each task prints."""
    log = jobs.ok("logs", "--job", job)
    tasks = [f"{task['role']}/{task['index']}" for task in jobs.status(job)["tasks"]]
    return {task: lines_of_task(log, task)[0].removeprefix("sees ").strip() for task in tasks}


def test_tasks_get_their_own_gpus_by_uuid_and_a_refusal_names_the_holders(gpus: Jobs) -> None:
    """A ps gets no GPU unless it asks for one; no task gets two MIG instances."""
    here = "replicas: 1, hosts: node1"
    roles = f"{{ps: {{{here}}}, chief: {{{here}, gpus: 2}}, worker: {{per_host: 2, hosts: node1, gpus: 1}}}}"
    gpus.ok("start", gpus.file("has", f"strategy: tf1_ps\n{STAY}roles: {roles}\n"))
    assert visible_devices(gpus, "has") == {
        "ps/0": "-1 by",
        "worker/0": f"{MIG[0]} by PCI_BUS_ID",
        "worker/1": f"{MIG[1]} by PCI_BUS_ID",
        "chief/0": f"{WHOLE[0]},{WHOLE[1]} by PCI_BUS_ID",
    }
    gpus_of = {task["role"]: task["gpus"] for task in gpus.status("has")["tasks"]}
    assert (gpus_of["ps"], gpus_of["chief"]) == ([], WHOLE[:2])

    stranger = gpus.lab.shell("node1", "sleep 600 > /dev/null 2>&1 & echo $!")
    install(gpus, "node1", {**DIVIDED, "users": f"gpu_uuid, pid, process_name\n{WHOLE[2]}, {stranger}, python3\n"})
    try:
        roles = f"{{ps: {{{here}, gpus: 1}}, worker: {{{here}, gpus: 2}}}}"
        done = gpus("start", gpus.file("wants", f"strategy: tf1_ps\n{STAY}roles: {roles}\n"))
        assert done.returncode == 5
        holders = "job has, task worker/0, job has, task worker/1, job has, task chief/0"
        assert f"node1: 3 GPUs requested, 2 free; the others are held by {holders}, pid {stranger}" in done.stderr
        assert f"pid {stranger} (python3) of ops" in done.stderr
    finally:
        gpus.lab.shell("node1", f"kill {stranger}")
    install(gpus, "node1", DIVIDED)
    gpus.ok("stop", "has")
    gpus.ok("start", gpus.folder / "wants/job.yaml")
    assert visible_devices(gpus, "wants") == {
        "ps/0": f"{MIG[0]} by PCI_BUS_ID",
        "worker/0": f"{WHOLE[0]},{WHOLE[1]} by PCI_BUS_ID",
    }


def test_start_refuses_a_host_whose_driver_fails_unless_gpus_is_zero(gpus: Jobs) -> None:
    text = STAY + "roles: {any: {replicas: 1, hosts: node2, gpus: %s}}\n"
    for unsaid in (text.replace(", gpus: %s", ""), text % 1):
        done = gpus("start", gpus.file("sick", unsaid))
        assert done.returncode == 8
        assert "node2: nvidia-smi: Failed to initialize NVML: Driver/library version mismatch" in done.stderr
        assert "restart the host" in done.stderr
        assert "`gpus: 0` computes without" in done.stderr
    gpus.ok("start", gpus.file("sick", text % 0))
    assert visible_devices(gpus, "sick") == {"any/0": "-1 by"}
