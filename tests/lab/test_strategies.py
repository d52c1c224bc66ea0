"""What a strategy says of a job's end, with tasks of plain shell: a second or two each."""

from __future__ import annotations

from jobs import Jobs, lines_of


def test_a_ps_that_is_gone_for_good_takes_the_job_with_it(jobs: Jobs) -> None:
    text = """
        strategy: tf1_ps
        command: [sh, -c, "test {role} = worker || exit 7; sleep 60"]
        roles: {ps: 1, worker: 2}
        policy: {max_restarts: 1}
    """
    done = jobs("start", jobs.file("ps-gone", text), "--wait")
    assert done.returncode == 100
    assert "ps/0 on node1 failed with exit code 7 after 1 restart" in done.stderr
    assert jobs.states("ps-gone") == {"ps/0": "failed", "worker/0": "stopped", "worker/1": "stopped"}


def test_the_last_worker_of_a_coordinator_takes_the_job_with_it_and_no_other_does(jobs: Jobs) -> None:
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


def test_where_all_workers_decide_one_that_is_gone_fails_the_job(jobs: Jobs) -> None:
    """As in step, where the others would wait for it for ever."""
    text = """
        strategy: tf1_ps
        command: [sh, -c, "test {role}{index} != worker1 || exit 7; sleep 60"]
        roles: {ps: 1, worker: 2}
        policy: {max_restarts: 0, success: all_workers}
    """
    done = jobs("start", jobs.file("in-step", text), "--wait")
    assert (done.returncode, "worker/1 on node2 failed with exit code 7" in done.stderr) == (100, True)
    assert jobs.states("in-step") == {"ps/0": "stopped", "worker/0": "stopped", "worker/1": "failed"}


def test_the_first_failure_ends_a_custom_job(jobs: Jobs) -> None:
    text = """
        command: [sh, -c, "test {role} != extra || exit 7; sleep 60"]
        roles: {chief: 1, extra: 1}
    """
    done = jobs("start", jobs.file("first", text), "--wait")
    assert (done.returncode, "extra/0 on node1 failed with exit code 7" in done.stderr) == (100, True)
    assert jobs.states("first") == {"chief/0": "stopped", "extra/0": "failed"}


def test_an_evaluator_drains_alone_and_no_longer_than_it_may(jobs: Jobs) -> None:
    text = """
        strategy: estimator
        command: [sh, -c, "case {role} in chief) exit;; evaluator) sleep 6; echo seen;; *) sleep 60;; esac"]
        roles: {chief: 1, ps: 1, evaluator: 1}
        policy: {drain: 30m}
    """
    done = jobs("start", jobs.file("drains", text), "--wait")
    assert done.returncode == 0, done.stderr
    assert "evaluator/0 has up to 1" in done.stderr
    assert "stopped ps/0, which had nothing left to do" in done.stderr
    assert jobs.states("drains") == {"chief/0": "succeeded", "ps/0": "stopped", "evaluator/0": "succeeded"}
    tasks = {task["role"]: task for task in jobs.status("drains")["tasks"]}
    assert tasks["ps"]["finished"] < tasks["evaluator"]["finished"]

    text = text.replace("sleep 6;", "sleep 60;").replace("30m", "2s")
    done = jobs("start", jobs.file("dries", text), "--wait")
    assert done.returncode == 0, done.stderr
    assert jobs.states("dries")["evaluator/0"] == "stopped"


def test_a_mirrored_task_has_none_of_a_tf_config_that_systemd_hands_down(jobs: Jobs) -> None:
    jobs.lab.said("node1", "sudo systemctl set-environment TF_CONFIG=stale")
    try:
        done = jobs("start", jobs.file("bare", "strategy: mirrored\ncommand: env\nroles: {worker: 1}\n"), "--wait")
    finally:
        jobs.lab.said("node1", "sudo systemctl unset-environment TF_CONFIG")
    assert done.returncode == 0, done.stderr
    told = [line for _, line in lines_of(jobs.ok("logs", "--job", "bare"))]
    assert "TFCTL_ROLE=worker" in told
    assert not [line for line in told if line.startswith("TF_CONFIG")]


def test_a_script_that_sets_tf_config_is_named_before_it_runs(jobs: Jobs) -> None:
    file = jobs.file("sets", "strategy: mirrored\ncommand: python3 train.py\nroles: {worker: 1}\n")
    (file.parent / "train.py").write_text("import os\nos.environ['TF_CONFIG'] = '{}'\n")
    done = jobs("start", file, "--wait")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("train.py, line 2 changes TF_CONFIG")
