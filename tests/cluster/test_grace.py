"""A task that is stopped has its grace period, whatever runs its program."""

from __future__ import annotations

import sys

import pytest
from node_tree import wait_until

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
