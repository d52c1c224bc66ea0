"""The policy of a job file on real nodes: the deadline, restarts, and what is stopped when the job has ended."""

from __future__ import annotations

import re
import time
from datetime import datetime

import pytest

from tests.lab.jobs import Jobs, wait_for

#: A ps that keeps running, and workers that succeed or fail after a second.
ENDS = """
    command: [sh, -c, "test {role} = ps && exec sleep 600; sleep 1; exit %d"]
    roles: {ps: 1, worker: 3}
    policy: {clean: %s}
"""
UNITS = "ls /run/systemd/system | grep -E '^tfctl-%s-'; true"


@pytest.mark.parametrize(("code", "job"), [(0, "succeeded"), (3, "failed")])
@pytest.mark.parametrize(
    ("clean", "ps", "units"), [("running", "stopped", True), ("all", "stopped", False), ("none", "running", True)]
)
def test_policy_clean_decides_what_is_stopped_when_a_job_ends(
    clean: str, ps: str, units: bool, code: int, job: str, jobs: Jobs
) -> None:
    """``units``: whether the units of the ended workers are still there."""
    name = f"{clean}-{job}"
    done = jobs("start", jobs.file(name, ENDS % (code, clean)), "--wait")
    assert done.returncode == (100 if code else 0), done.stderr
    assert ("stopped ps/0" in done.stderr) == (ps == "stopped")
    found = jobs.status(name)
    assert (found["state"], found["tasks"][0]["state"]) == (job, ps)
    there = [line for lines in jobs.everywhere(UNITS % name).values() for line in lines]
    assert [any("worker" in line for line in there), any("-ps-" in line for line in there)] == [units, ps == "running"]
    jobs.ok("stop", name)
    assert jobs.status(name)["state"] == job, "a stop after the end must not change how the job ended"
    jobs.assert_nothing_left()


def test_limits_of_a_role_are_those_of_its_units(jobs: Jobs) -> None:
    """The lab's nodes need not have the controllers that enforce them."""
    text = (
        'command: [sh, -c, "echo begun; exec sleep 600"]\nroles: {worker: {limits: {memory: 64M, cpus: 0.5}}, ps: 1}\n'
    )
    jobs.ok("start", jobs.file("limited", text))
    wanted = ["MemoryMax", "MemorySwapMax", "CPUQuotaPerSecUSec", "OOMPolicy"]
    show = " ".join(f"-p {name}" for name in wanted)
    shown = {}
    for role in ("worker", "ps"):
        unit = f"tfctl-limited-{role}-0.service"
        command = f"test -e /run/systemd/system/{unit} && systemctl show {show} {unit}; true"
        [shown[role]] = [
            dict(line.split("=", 1) for line in lines) for lines in jobs.everywhere(command).values() if lines
        ]
    assert shown["worker"] == dict(zip(wanted, [str(64 * 2**20), "0", "500ms", "stop"], strict=True))
    assert shown["ps"] == dict(zip(wanted, ["infinity", "infinity", "infinity", "stop"], strict=True))
    jobs.ok("stop", "limited")
    jobs.assert_nothing_left()


@pytest.mark.parametrize("restarts", [0, 2])
def test_deadline_stops_every_task_without_a_restart(restarts: int, jobs: Jobs) -> None:
    text = f"policy: {{deadline: 3s, max_restarts: {restarts}}}\n"
    name = f"deadline-{restarts}"
    file = jobs.file(name, 'command: [sh, -c, "echo begun; exec sleep 600"]\nroles: {worker: 2}\n' + text)
    done = jobs("start", file, "--wait", "--timeout", "40s")
    assert done.returncode == 100, done.stderr
    found = jobs.status(name)
    assert (found["state"], found["tasks"][0]["signal"]) == ("failed", "SIGTERM")
    assert {task["restarts"] for task in found["tasks"]} == {0}
    assert jobs.ok("logs", "--job", name).count("begun") == 2
    jobs.ok("stop", name)
    jobs.assert_nothing_left()


def test_deadline_counts_over_all_restarts(jobs: Jobs) -> None:
    # A task that fails twice in the same way is not started again, so the exit codes differ.
    script = "echo >>runs; sleep 1; exit $(wc -l <runs)"
    text = f"command: [sh, -c, '{script}']\nroles: {{worker: 1}}\npolicy: {{deadline: 8s, max_restarts: 100}}\n"
    done = jobs("start", jobs.file("again", text), "--wait", "--timeout", "60s")
    assert done.returncode == 100, done.stderr
    assert re.search(r"failed with (exit code [1-4]|SIGTERM) at its deadline after [1-3] restart", done.stderr), (
        done.stderr
    )
    [task] = jobs.status("again")["tasks"]
    lasted = datetime.fromisoformat(task["finished"]) - datetime.fromisoformat(task["started"])
    # If it was waiting for its next run at the deadline, its last run had ended up to 2 s before.
    assert 5 <= lasted.total_seconds() <= 12, task
    time.sleep(3)
    assert jobs.states("again") == {"worker/0": "failed"}
    jobs.ok("stop", "again")
    jobs.assert_nothing_left()


@pytest.mark.parametrize(
    ("name", "on_sigterm", "end"),
    [("zero", "exit 0", "exit code 0"), ("seven", "exit 7", "exit code 7"), ("deaf", "", "SIGKILL")],
)
def test_a_task_fails_at_its_deadline_whatever_it_does_on_sigterm(
    name: str, on_sigterm: str, end: str, jobs: Jobs
) -> None:
    text = "policy: {deadline: 3s, max_restarts: 5, grace: 2s}\n"
    command = f"command: [sh, -c, 'trap \"{on_sigterm}\" TERM; echo begun; while :; do sleep 0.1; done']\n"
    done = jobs("start", jobs.file(name, f"{command}roles: {{worker: 1}}\n{text}"), "--wait", "--timeout", "60s")
    assert done.returncode == 100, done.stderr
    assert f"failed with {end} at its deadline" in done.stderr
    assert jobs.states(name) == {"worker/0": "failed"}
    assert jobs.ok("logs", "--job", name).count("begun") == 1
    jobs.ok("stop", name)
    jobs.assert_nothing_left()


def test_a_restart_by_a_user_begins_the_deadline_again(jobs: Jobs) -> None:
    text = "command: sleep 600\nroles: {worker: 1}\npolicy: {deadline: 10s}\n"
    jobs.ok("start", jobs.file("renewed", text))
    time.sleep(6)
    jobs.ok("restart", "renewed", "worker", "0")
    time.sleep(6)
    assert jobs.states("renewed") == {"worker/0": "running"}
    done = jobs("wait", "renewed", "--timeout", "30s")
    assert done.returncode == 100
    assert "failed with SIGTERM at its deadline after 1 restart" in done.stderr
    jobs.ok("stop", "renewed")
    assert not any(jobs.everywhere("systemctl list-units --all --no-legend 'tfctldeadline-*'").values())
    jobs.assert_nothing_left()


def test_failed_task_is_restarted_before_the_deadline(jobs: Jobs) -> None:
    command = '[sh, -c, "test -e tried || { touch tried; kill -9 $$; }"]'
    text = f"command: {command}\nroles: {{worker: 1}}\npolicy: {{deadline: 30s, max_restarts: 3}}\n"
    jobs.ok("start", jobs.file("tries", text), "--wait")
    assert jobs.status("tries")["tasks"][0]["restarts"] == 1


@pytest.mark.parametrize("command", ["[sh, -c, 'python3 train.py; echo over']", "[bash, run.sh]"])
def test_stop_gives_a_program_that_a_shell_runs_its_grace_period(command: str, jobs: Jobs) -> None:
    """systemd ends the shell first, and the program only after ExecStopPost."""
    file = jobs.file("shell", f"command: {command}\nroles: {{worker: 1}}\npolicy: {{grace: 20s}}\n")
    (file.parent / "run.sh").write_text("python3 train.py\necho over\n")
    (file.parent / "train.py").write_text(
        "import signal, sys, time\n"
        "def save(*_):\n    time.sleep(3)\n    print('saved', flush=True)\n    sys.exit()\n"
        "signal.signal(signal.SIGTERM, save)\nprint('begun', flush=True)\ntime.sleep(600)\n"
    )
    jobs.ok("start", file)
    wait_for(lambda: "begun" in jobs.ok("logs", "--job", "shell"), 20)
    jobs.ok("stop", "shell")
    assert "saved" in jobs.ok("logs", "--job", "shell")
    assert jobs.states("shell") == {"worker/0": "stopped"}
    jobs.assert_nothing_left()
