"""`tfctl why` about jobs of TensorFlow with faults: a task that is stopped, lost packets, a missing module, an input
that waits, a task that computes without an end, a full disk. And about jobs that have none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.lab.jobs import Jobs
from tests.lab.test_horovod import inventory as horovod_inventory  # noqa: F401  a fixture
from tests.lab.test_samples import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).parent / "programs/faulty.py"
#: The roles of each strategy, the task with the fault, and the lines that a task that trains prints.
ROLES = {
    "multi_worker_mirrored": ("{worker: {per_host: 1}}", "worker/1", "loss:"),
    "parameter_server": (
        "{chief: {replicas: 1, hosts: node1}, ps: {replicas: 1, hosts: node2}, "
        "worker: {replicas: 2, hosts: 'node3:node4'}}",
        "chief/0",
        "epoch 2",
    ),
    "tf1_ps": (
        "{ps: {replicas: 1, hosts: node4}, worker: {per_host: 1, hosts: 'node1:node2:node3'}}",
        "worker/0",
        "step 40",
    ),
    "mirrored": ("{worker: 1}", "worker/0", "loss:"),
    "estimator": (
        "{chief: {replicas: 1, hosts: node1}, ps: {replicas: 1, hosts: node2}, "
        "worker: {replicas: 2, hosts: 'node3:node4'}}",
        "worker/0",
        "step 40",
    ),
    "horovod": ("{worker: {per_host: 1, hosts: 'node1:node2'}}", "worker/1", "loss:"),
}
ON_ONE_HOST = {
    "multi_worker_mirrored": "{worker: {replicas: 2, hosts: node1}}",
    "parameter_server": "{chief: {replicas: 1, hosts: node1}, ps: {replicas: 1, hosts: node1}, "
    "worker: {replicas: 1, hosts: node1}}",
    "tf1_ps": "{ps: {replicas: 1, hosts: node1}, worker: {replicas: 1, hosts: node1}}",
    "mirrored": "{worker: {replicas: 1, hosts: node1}}",
    "estimator": "{chief: {replicas: 1, hosts: node1}, ps: {replicas: 1, hosts: node1}, "
    "worker: {replicas: 1, hosts: node1}}",
    "horovod": "{worker: {replicas: 2, hosts: node1}}",
}
CLUSTERS = ("multi_worker_mirrored", "parameter_server", "tf1_ps", "estimator", "horovod")
#: Each fault, the kind that `why` finds, and the strategies that it concerns.
FAULTS = {
    "stop": ("stopped", (*CLUSTERS, "mirrored")),
    "drop": ("network", CLUSTERS),
    "import": ("missing module", (*CLUSTERS, "mirrored")),
    "input": ("input blocks", ("multi_worker_mirrored", "tf1_ps", "estimator", "horovod", "mirrored")),
    "spin": ("spinning", (*CLUSTERS, "mirrored")),
    "disk": ("disk full", (*CLUSTERS, "mirrored")),
}
CASES = [(fault, strategy) for fault, (_, strategies) in FAULTS.items() for strategy in strategies]
#: How long (s) tasks run with the fault before somebody asks.
HUNG_S = 12
#: Drops what arrives from other hosts, except for ssh.
DROP = (
    "nft add table inet faults; nft add chain inet faults in '{ type filter hook input priority 0; }'; "
    "nft add rule inet faults in tcp dport 22 accept; nft add rule inet faults in tcp sport 22 accept; "
    "nft add rule inet faults in iifname != lo meta l4proto tcp drop"
)


class Result(NamedTuple):
    fault: str
    strategy: str
    wanted: str
    found: str


@pytest.fixture(scope="module")
def results() -> Iterator[list[Result]]:
    """What was found in each case. In the file that TFCTL_TEST_WHY names, it replaces what was found in the same cases
    before. docs/troubleshooting.md shows it."""
    found: list[Result] = []
    yield found
    if path := os.environ.get("TFCTL_TEST_WHY"):
        before = [Result(**each) for each in json.loads(Path(path).read_text())] if Path(path).exists() else []
        again = {result[:2] for result in found}
        kept = [result for result in before if result[:2] not in again]
        written = [result._asdict() for result in sorted([*kept, *found])]
        Path(path).write_text(json.dumps(written, indent=1) + "\n")


@pytest.fixture(scope="module")
def places(module_jobs: Jobs) -> Iterator[None]:
    """A FIFO that nobody writes to."""
    make = "mkdir -p /srv/tfctl/faults; mkfifo -m 666 /srv/tfctl/faults/fifo 2>/dev/null; true"
    module_jobs.everywhere(make)
    module_jobs.everywhere(
        "command -v nft >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -qq -y nftables"
    )
    yield
    module_jobs.root("node1", "rm -r /srv/tfctl/faults")


@contextmanager
def running(jobs: Jobs, name: str, strategy: str, fault: str) -> Iterator[str]:
    """Run a job, and yield the task that has the fault, on which host."""
    roles, faulty, trained = ROLES[strategy]
    if fault == "disk":  # the output of all tasks is on a small disk of one host
        roles = ON_ONE_HOST[strategy]
    own = fault if fault in ("import", "input", "spin", "disk") else "none"
    path = jobs.file(
        name,
        f"strategy: {strategy}\nstack: tf2.15\ncommand: python faulty.py {strategy} {faulty} {own}\nroles: {roles}\n"
        "env: {TF_CPP_MIN_LOG_LEVEL: 1}\n",
    )
    (path.parent / "faulty.py").write_bytes(PROGRAM.read_bytes())
    if fault == "disk":
        jobs.root("node1", f"mkdir -p /srv/tfctl/{name}; mount -t tmpfs -o size=8m,mode=1777 tmpfs /srv/tfctl/{name}")
    try:
        jobs.ok("start", path)
        if own in ("none", "spin", "input"):
            until(lambda: trained in jobs.ok("logs", "-j", name, "--tail", 50), within=90)
        yield faulty
    finally:
        jobs("stop", name, "--now")
        if fault == "disk":
            jobs.root("node1", f"umount -l /srv/tfctl/{name}")


@contextmanager
def inflicted(jobs: Jobs, name: str, fault: str, task: str, host: str) -> Iterator[None]:
    unit = f"tfctl-{name}-{task.replace('/', '-')}.service"
    if fault == "stop":
        jobs.root(host, f"systemctl kill --signal=STOP {unit}")
    elif fault == "drop":
        jobs.root(host, DROP)
    try:
        yield
    finally:
        if fault == "drop":
            jobs.root(host, "nft delete table inet faults")
        elif fault == "stop":
            jobs.root(host, f"systemctl kill --signal=CONT {unit} || true")


def why(jobs: Jobs, name: str) -> dict[str, Any]:
    began = time.monotonic()
    found: dict[str, Any] = json.loads(jobs.ok("why", name, "-o", "json"))
    print(name, round(time.monotonic() - began, 1), json.dumps(found))
    return found


@pytest.fixture
def jobs_of(
    module_jobs: Jobs, strategy: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Jobs]:
    """Jobs on the hosts of the lab. Two of them get Horovod when it is first needed."""
    if strategy != "horovod":
        yield module_jobs
        return
    inventory = request.getfixturevalue("horovod_inventory")
    found = Jobs(module_jobs.lab, tmp_path_factory.mktemp("horovod-jobs"), [], inventory)
    yield found
    found.clean()


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(("fault", "strategy"), CASES)
def test_why_names_the_task_its_host_and_the_kind(
    fault: str, strategy: str, jobs_of: Jobs, results: list[Result]
) -> None:
    name = f"{fault}-{strategy.replace('_', '')[:12]}"
    kind = FAULTS[fault][0]
    with running(jobs_of, name, strategy, fault) as faulty:
        host = {f"{each['role']}/{each['index']}": each["host"] for each in jobs_of.status(name)["tasks"]}[faulty]
        with inflicted(jobs_of, name, fault, faulty, host):
            time.sleep(HUNG_S)
            found = why(jobs_of, name)
            if fault == "stop":  # what tasks use that wait for another one in TensorFlow (why.WAITING)
                traced = json.loads(jobs_of.ok("trace", name, "-o", "json"))["tasks"]
                print("cores:", {f"{each['role']}/{each['index']}": each["cpu"] for each in traced})
    culprit = found["culprits"][0] if found["culprits"] else {"task": "", "host": "", "kind": found["verdict"]}
    said = f"{culprit['task']} on {culprit['host']}: {culprit['kind']}"
    wanted = f"{faulty} on {host}: {kind}"
    results.append(Result(fault, strategy, wanted, said))
    assert (culprit["host"], culprit["kind"]) == (host, kind), said
    assert culprit["task"] in (faulty, None)


@pytest.mark.parametrize("strategy", ROLES)
def test_why_says_that_nothing_is_wrong_with_a_healthy_job(strategy: str, jobs_of: Jobs, results: list[Result]) -> None:
    name = f"fine-{strategy.replace('_', '')[:12]}"
    with running(jobs_of, name, strategy, "none"):
        for _ in range(4):
            time.sleep(3)
            found = why(jobs_of, name)
            results.append(Result("none", strategy, "healthy", found["verdict"]))
            assert found["verdict"] == "healthy", found
