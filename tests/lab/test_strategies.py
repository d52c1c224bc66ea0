"""How each strategy decides when a job ends, tested with shell commands that take a second or two."""

from __future__ import annotations

from tests.lab.jobs import Jobs, lines_of


def test_job_fails_when_a_parameter_server_is_out_of_restarts(jobs: Jobs) -> None:
    text = """
        strategy: tf1_ps
        command: [sh, -c, "test {role} = worker || kill -KILL $$; sleep 60"]
        roles: {ps: 1, worker: 2}
        policy: {max_restarts: 1}
    """
    done = jobs("start", jobs.file("ps-gone", text), "--wait")
    assert done.returncode == 100
    assert "ps/0 on node1 failed with SIGKILL after 1 restart" in done.stderr
    assert jobs.states("ps-gone") == {"ps/0": "failed", "worker/0": "stopped", "worker/1": "stopped"}


def test_coordinator_job_fails_only_when_its_last_worker_fails(jobs: Jobs) -> None:
    text = """
        strategy: parameter_server
        command: [sh, -c, "case {role}{index} in worker0) exit 7;; worker1) sleep 3; exit 8;; esac; sleep 60"]
        roles: {chief: 1, ps: 1, worker: 2}
        policy: {max_restarts: 0}
    """
    done = jobs("start", jobs.file("workers-gone", text), "--wait")
    assert done.returncode == 100
    states = jobs.states("workers-gone")
    assert states == {"chief/0": "stopped", "ps/0": "stopped", "worker/0": "failed", "worker/1": "failed"}


def test_job_fails_with_one_worker_when_success_needs_all_workers(jobs: Jobs) -> None:
    """In synchronous training the other workers would wait for the failed one forever."""
    text = """
        strategy: tf1_ps
        command: [sh, -c, "test {role}{index} != worker1 || exit 7; sleep 60"]
        roles: {ps: 1, worker: 2}
        policy: {max_restarts: 0, success: all_workers}
    """
    done = jobs("start", jobs.file("in-step", text), "--wait")
    assert (done.returncode, "worker/1 on node2 failed with exit code 7" in done.stderr) == (100, True)
    assert jobs.states("in-step") == {"ps/0": "stopped", "worker/0": "stopped", "worker/1": "failed"}


def test_custom_job_fails_with_its_first_failed_task(jobs: Jobs) -> None:
    text = """
        command: [sh, -c, "test {role} != extra || exit 7; sleep 60"]
        roles: {chief: 1, extra: 1}
    """
    done = jobs("start", jobs.file("first", text), "--wait")
    assert (done.returncode, "extra/0 on node1 failed with exit code 7" in done.stderr) == (100, True)
    assert jobs.states("first") == {"chief/0": "stopped", "extra/0": "failed"}


def test_evaluator_may_finish_after_the_job_within_its_drain_time(jobs: Jobs) -> None:
    text = """
        strategy: estimator
        command: [sh, -c, "case {role} in chief) exit;; evaluator) sleep 6; echo seen;; *) sleep 60;; esac"]
        roles: {chief: 1, ps: 1, evaluator: 1}
        policy: {drain: 30m}
    """
    done = jobs("start", jobs.file("drains", text), "--wait")
    assert done.returncode == 0, done.stderr
    assert "evaluator/0 may run for up to 1" in done.stderr
    assert "stopped ps/0, which had nothing left to do" in done.stderr
    assert jobs.states("drains") == {"chief/0": "succeeded", "ps/0": "stopped", "evaluator/0": "succeeded"}
    tasks = {task["role"]: task for task in jobs.status("drains")["tasks"]}
    assert tasks["ps"]["finished"] < tasks["evaluator"]["finished"]

    text = text.replace("sleep 6;", "sleep 60;").replace("30m", "2s")
    done = jobs("start", jobs.file("dries", text), "--wait")
    assert done.returncode == 0, done.stderr
    assert jobs.states("dries")["evaluator/0"] == "stopped"


def test_mirrored_task_does_not_inherit_tf_config_from_systemd(jobs: Jobs) -> None:
    jobs.lab.shell("node1", "sudo systemctl set-environment TF_CONFIG=stale")
    try:
        done = jobs("start", jobs.file("bare", "strategy: mirrored\ncommand: env\nroles: {worker: 1}\n"), "--wait")
    finally:
        jobs.lab.shell("node1", "sudo systemctl unset-environment TF_CONFIG")
    assert done.returncode == 0, done.stderr
    lines = [line for _, line in lines_of(jobs.ok("logs", "--job", "bare"))]
    assert "TFCTL_ROLE=worker" in lines
    assert not [line for line in lines if line.startswith("TF_CONFIG")]


def test_start_warns_about_a_script_that_sets_tf_config(jobs: Jobs) -> None:
    file = jobs.file("sets", "strategy: mirrored\ncommand: python3 train.py\nroles: {worker: 1}\n")
    (file.parent / "train.py").write_text("import os\nos.environ['TF_CONFIG'] = '{}'\n")
    done = jobs("start", file, "--wait")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("train.py, line 2 changes TF_CONFIG")
