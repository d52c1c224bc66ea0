"""`tfctl restart` of a whole job and of one task, with the real systemd."""

from __future__ import annotations

from tests.lab.jobs import Jobs, lines_of_task, wait_for

STAY = """
    command: [sh, -c, "echo begun in $TFCTL_ATTEMPT with $SECRET; exec sleep 600"]
    env: {SECRET: s3cret}
    roles: {ps: 1, worker: 3}
"""


def test_restart_runs_a_failed_job_again_without_its_job_file(jobs: Jobs) -> None:
    jobs.ok("start", file := jobs.file("anew", STAY))
    file.unlink()
    attempt = jobs.status("anew")["attempt"] + 1
    jobs.everywhere("sudo systemctl kill --signal=KILL tfctl-anew-worker-1 2>/dev/null; true")
    assert jobs("wait", "anew").returncode == 100, "which ends the others"
    jobs.ok("restart", "anew")
    found = jobs.status("anew")
    assert (found["attempt"], found["state"]) == (attempt, "running")
    tasks = [f"{task['role']}/{task['index']}" for task in found["tasks"]]
    wait_for(lambda: jobs.ok("logs", "--job", "anew").count(f"begun in {attempt}") == len(tasks), 20)
    assert {tuple(lines_of_task(jobs.ok("logs", "--job", "anew"), task)) for task in tasks} == {
        (f"begun in {attempt} with s3cret",)
    }
    assert not any(
        jobs.everywhere(
            "grep -rl s3cret --include=*.json --include=*.service /var/lib/tfctl /run/systemd/system; true"
        ).values()
    )
    assert set().union(*jobs.everywhere("stat -c %a /run/tfctl/env/tfctl-anew-* 2>/dev/null; true").values()) == {"600"}
    jobs.ok("stop", "anew")
    jobs.assert_nothing_left()
    assert not any(jobs.everywhere("ls -d /run/tfctl/ended 2>/dev/null; true").values())


def test_restart_of_one_task_is_not_mistaken_for_a_failure(jobs: Jobs) -> None:
    """A `wait` that looks between the old process and the new one must not see a failure, which would end the job."""
    jobs.ok("start", jobs.file("single", STAY + "    policy: {max_restarts: 1}\n"))
    process = jobs.begin("wait", "single", "--timeout", "60s")
    for number in range(1, 6):
        jobs.ok("restart", "single", "worker", 1)
        assert jobs.status("single")["tasks"][2]["restarts"] == number
    found = jobs.status("single")
    assert {task["state"] for task in found["tasks"]} == {"running"}
    assert [task["restarts"] for task in found["tasks"]] == [0, 0, 5, 0]
    assert process.poll() is None
    jobs.ok("stop", "single")
    process.communicate(timeout=30)
    assert process.returncode == 103
    jobs.assert_nothing_left()
