"""What a job file's policy says happens on real nodes: the deadline, and what is stopped when the job has ended."""

from __future__ import annotations

import pytest
from jobs import Jobs

#: A ps that stays, and a worker that succeeds, or fails at once.
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
def test_what_is_stopped_when_the_job_has_ended(
    clean: str, ps: str, units: bool, code: int, job: str, jobs: Jobs
) -> None:
    """``units``: whether those of the workers that have ended are there to be looked at."""
    name = f"{clean}-{job}"
    done = jobs("start", jobs.file(name, ENDS % (code, clean)), "--wait")
    assert done.returncode == (100 if code else 0), done.stderr
    assert ("stopped ps/0" in done.stderr) == (ps == "stopped")
    found = jobs.status(name)
    assert (found["state"], found["tasks"][0]["state"]) == (job, ps)
    there = [line for lines in jobs.everywhere(UNITS % name).values() for line in lines]
    assert [any("worker" in line for line in there), any("-ps-" in line for line in there)] == [units, ps == "running"]
    jobs.ok("stop", name)
    after = "stopped" if ps == "running" else job
    assert jobs.status(name)["state"] == after, "a stop of what has ended by itself does not change how it ended"
    jobs.untouched()


@pytest.mark.parametrize("restarts", [0, 2])
def test_the_deadline_ends_each_task_for_good(restarts: int, jobs: Jobs) -> None:
    """A task that dies of it then is not begun again."""
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
    jobs.untouched()


def test_a_failure_before_the_deadline_is_still_begun_again(jobs: Jobs) -> None:
    command = '[sh, -c, "test -e tried || { touch tried; kill -9 $$; }"]'
    text = f"command: {command}\nroles: {{worker: 1}}\npolicy: {{deadline: 30s, max_restarts: 3}}\n"
    jobs.ok("start", jobs.file("tries", text), "--wait")
    assert jobs.status("tries")["tasks"][0]["restarts"] == 1
