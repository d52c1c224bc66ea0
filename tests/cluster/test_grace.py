"""A task that is stopped has its grace period, whatever runs its program."""

from __future__ import annotations

import sys
import time

import pytest
from node_tree import wait_until

from tests.cluster.guards import units
from tests.cluster.hosts import Hosts

#: Saves a checkpoint, which takes a moment, when SIGTERM arrives.
TRAIN = """\
import signal, time
def save(*_):
    time.sleep(0.3)
    print("saved", flush=True)
    raise SystemExit(0)
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
while True:
    time.sleep(0.1)
"""


#: Ignores SIGTERM, and waits in vain: a program that does nothing could be woken by its own child.
DEAF = 'command: [sh, -c, "trap : TERM; echo begun; while :; do sleep 0.1; done"]\n'
FOR_YEARS = "policy: {grace: 3650d}\n"


def test_stop_now_ends_a_job_that_ignores_sigterm_whatever_its_grace_period_is(hosts: Hosts) -> None:
    """Another client already stops the job, and would wait for ten years."""
    hosts.ok("start", hosts.file("deaf", DEAF + "roles: {worker: 3}\n" + FOR_YEARS))
    wait_until(lambda: hosts.ok("logs", "deaf").count("begun") == 3)
    with hosts.begin("stop", "deaf") as patient:
        wait_until(lambda: all(any(call.startswith("stop ") for call in tree.calls()) for tree in hosts.trees.values()))
        assert len(hosts.alive()) == 3
        began = time.monotonic()
        done = hosts("stop", "deaf", "--now", "-o", "json")
        assert 2 <= time.monotonic() - began < 15
        assert patient.done().code == 0
    assert (done.code, done.objects) == (0, [{"job": "deaf", "stopped": ["worker/0", "worker/1", "worker/2"]}])
    assert hosts.alive() == []
    found = hosts.status("deaf")
    assert (found["state"], {task["signal"] for task in found["tasks"]}) == ("stopped", {"SIGKILL"})
    hosts.untouched()
    assert hosts("stop", "deaf", "--now").err == "deaf: nothing was running\n"


def test_stop_now_lets_a_task_end_by_itself_within_two_seconds(hosts: Hosts) -> None:
    text = f"command: [sh, -c, 'exec {sys.executable} -S train.py']\nroles: {{worker: 1}}\n"
    file = hosts.file("quick", text)
    (file.parent / "train.py").write_text(TRAIN)
    hosts.ok("start", file)
    wait_until(lambda: "begun" in hosts.ok("logs", "worker", "0"))
    hosts.ok("stop", "quick", "--now")
    assert "saved" in hosts.ok("logs", "worker", "0")
    assert hosts.status("quick")["tasks"][0]["exit_code"] == 0


def test_stop_now_ends_tasks_that_a_guard_is_stopping(guarded: Hosts) -> None:
    """The job has failed. Its guards stop the tasks that are left, and would wait for ten years."""
    flag = guarded.trees["node1"] / "told"
    chief = f"until test -e {flag}; do sleep 0.1; done; exit 3"
    text = f"""\
        {DEAF.strip()}
        roles:
          chief: {{replicas: 1, hosts: node1, command: [sh, -c, "{chief}"]}}
          server: {{replicas: 2, hosts: "node2,node3"}}
        policy: {{success: chief, max_restarts: 0, max_attempts: 3, grace: 3650d}}
        """
    guarded.ok("start", guarded.file("held", text))
    flag.touch()
    stopping = ("node2", "node3")
    wait_until(
        lambda: all(any(call.startswith("stop ") for call in guarded.trees[name].calls()) for name in stopping),
        timeout=40,
    )
    assert len(guarded.alive()) == 2
    done = guarded("stop", "held", "--now")
    assert (done.code, done.err) == (0, "held: stopped server/0 and server/1\n"), done
    assert guarded.alive() == []
    wait_until(lambda: not units(guarded), lambda: str(units(guarded)))
    assert guarded.status("held")["state"] == "failed"
    guarded.untouched()


@pytest.mark.extended
@pytest.mark.parametrize(
    "command",
    [
        "[sh, -c, '{python} -S train.py; echo over']",
        "[sh, -c, 'test {role} = ps && exec sleep 600; {python} -S train.py; echo over']",
        "[sh, -c, 'cd . && exec {python} -S train.py']",
        "[./run.sh]",
    ],
)
def test_stop_gives_a_program_that_a_shell_runs_its_grace_period(command: str, hosts: Hosts) -> None:
    text = f"command: {command.replace('{python}', sys.executable)}\nroles: {{worker: 1}}\npolicy: {{grace: 20s}}\n"
    file = hosts.file("shell", text, **{"run.sh": f"{sys.executable} -S train.py\necho over\n"})
    (file.parent / "train.py").write_text(TRAIN)
    hosts.ok("start", file)
    wait_until(lambda: "begun" in hosts.ok("logs", "worker", "0"))
    hosts.ok("stop", "shell")
    assert "saved" in hosts.ok("logs", "worker", "0")
    assert hosts.status("shell")["tasks"][0]["state"] == "stopped"
