"""A job on this machine: how it succeeds, fails, comes back and is judged."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.unit.local.local_run import Local
from tfctl.jobs.code import select

CUSTOM = "strategy: custom\ncommand: python train.py\n"


def test_tasks_run_in_parallel_and_servers_are_ended(local: Local) -> None:
    local.write(
        CUSTOM + "roles: {chief: 1, worker: 2, ps: {replicas: 1, command: sleep 600}}\n",
        """
        import os, pathlib, time
        here = pathlib.Path(os.environ["TFCTL_OUTPUT"])
        (here / (os.environ["TFCTL_ROLE"] + os.environ["TFCTL_INDEX"])).touch()
        while len(list(here.iterdir())) < 3:
            time.sleep(0.01)
        print("all are here")
        """,
    )
    done = local.run()
    assert done.code == 0
    assert done.lines["chief/0"] == ["all are here"]
    assert "ps/0" not in done.lines
    assert "ps/0" in done.err
    assert "digits succeeded after" in done.err
    assert sorted(path.name for path in (local.folder / "tfctl-output/digits").iterdir()) == [
        "chief0", "worker0", "worker1",
    ]  # fmt: skip


def test_run_prints_an_object_per_line(local: Local) -> None:
    local.write(CUSTOM + "roles: {worker: 1}\n", "print('here')\n")
    [line] = local.run("-o", "json").out.splitlines()
    found = json.loads(line)
    assert (found["role"], found["index"], found["stream"], found["line"]) == ("worker", 0, "stdout", "here")


def test_a_failure_ends_the_job_and_names_the_task(local: Local) -> None:
    local.write(
        CUSTOM + "roles: {worker: 2}\n",
        """
        import os, sys, time
        print("before", flush=True)
        print("no newline at the end", end="")
        if os.environ["TFCTL_INDEX"] == "1":
            sys.exit(7)
        time.sleep(600)
        """,
    )
    done = local.run()
    assert done.code == 100
    assert "digits failed after" in done.err
    assert "worker/1 on localhost failed with exit code 7" in done.err
    assert done.lines["worker/1"] == ["before", "no newline at the end"]


@pytest.mark.parametrize(
    ("number", "name"),
    [(9, "SIGKILL"), pytest.param(35, "SIG35", marks=pytest.mark.skipif(sys.platform != "linux", reason="real-time"))],
)
def test_a_task_that_a_signal_ended_is_reported_with_its_name(local: Local, number: int, name: str) -> None:
    local.write(f"strategy: custom\ncommand: [sh, -c, 'kill -{number} $$']\nroles: {{worker: 1}}\n")
    done = local.run()
    assert done.code == 100
    assert f"worker/0 on localhost failed with {name}" in done.err


def test_a_failed_task_is_restarted_alone_up_to_max_restarts(local: Local) -> None:
    local.write(
        CUSTOM + "roles: {worker: 2}\npolicy: {max_restarts: 1}\n",
        """
        import os, pathlib, sys, time
        index = os.environ["TFCTL_INDEX"]
        times = pathlib.Path("times" + index)
        count = len(times.read_text()) if times.exists() else 0
        times.write_text("x" * (count + 1))
        while index == "1" and count == 1 and pathlib.Path("times0").read_text() != "xx":
            time.sleep(0.01)  # its end is the job's
        sys.exit(3 if index == "1" or count == 0 else 0)
        """,
    )
    done = local.run()
    assert done.code == 100
    assert "worker/0 failed with exit code 3; restart in 2 s (1 of 1)" in done.err
    assert "worker/1 on localhost failed with exit code 3 after 1 restart" in done.err
    assert [(local.folder / f"times{index}").read_text() for index in "01"] == ["xx", "xx"]


def test_the_deciders_of_a_local_job_are_those_of_the_model(local: Local) -> None:
    """tf1_ps: worker 0 decides; another that fails beside it does not; a ps does."""
    job = (
        "strategy: tf1_ps\nstack: none\ncommand: [sh, -c, 'sleep 0.5; exit $TFCTL_INDEX']\npolicy: {max_restarts: 0}\n"
    )
    local.write(job + "roles: {worker: 2, ps: {replicas: 1, command: sleep 600}}\n")
    done = local.run()
    assert done.code == 0
    local.write(job.replace("sleep 0.5", "sleep 600") + "roles: {worker: 2, ps: {replicas: 1, command: 'false'}}\n")
    done = local.run()
    assert done.code == 100
    assert "ps/0 on localhost failed with exit code 1" in done.err


def test_local_run_with_clean_none_waits_for_the_remaining_tasks(local: Local) -> None:
    local.write(
        "strategy: custom\ncommand: 'true'\npolicy: {clean: none}\n"
        "roles: {chief: 1, ps: {replicas: 1, command: [sh, -c, 'sleep 0.5; echo last']}}\n",
    )
    done = local.run()
    assert done.code == 0
    assert done.lines["ps/0"] == ["last"]


@pytest.mark.extended
def test_a_local_run_says_that_limits_do_not_apply(local: Local) -> None:
    local.write(CUSTOM + "roles: {worker: {limits: {memory: 1M, cpus: 0.01}}}\n", "print('trained')")
    done = local.run()
    assert (done.code, done.lines["worker/0"]) == (0, ["trained"])
    assert done.err.count("`limits` apply only on hosts: the tasks run here without them") == 1
    local.write(CUSTOM + "roles: {worker: 1}\n")
    assert "limits" not in local.run().err


def test_a_deadline_ends_a_task(local: Local) -> None:
    command = "command: [sh, -c, 'echo begun; exec sleep 600']\n"
    local.write(f"strategy: custom\n{command}roles: {{worker: 1}}\npolicy: {{deadline: 1s, max_restarts: 2}}\n")
    done = local.run()
    assert done.code == 100
    assert done.lines["worker/0"] == ["begun"]
    assert "worker/0 on localhost failed with SIGTERM at its deadline" in done.err


@pytest.mark.extended
@pytest.mark.parametrize("code", [0, 7])
def test_a_task_that_answers_the_sigterm_of_its_deadline_fails_and_is_not_restarted(local: Local, code: int) -> None:
    command = f"command: [sh, -c, 'trap \"exit {code}\" TERM; echo begun; while :; do sleep 0.05; done']\n"
    local.write(f"strategy: custom\n{command}roles: {{worker: 1}}\npolicy: {{deadline: 1s, max_restarts: 2}}\n")
    done = local.run()
    assert done.code == 100
    assert done.lines["worker/0"] == ["begun"]
    assert f"worker/0 on localhost failed with exit code {code} at its deadline" in done.err


@pytest.mark.extended
@pytest.mark.parametrize(
    "script", ["echo begun; echo >>n; exit $(wc -l <n)", "echo begun; sleep 2; echo >>n; exit $(wc -l <n)"]
)
def test_a_deadline_counts_over_all_restarts(local: Local, script: str) -> None:
    """Either a run or the pause before a restart lasts from 2 s to 4 s after the first start."""
    command = f"command: [sh, -c, '{script}']\n"
    local.write(f"strategy: custom\n{command}roles: {{worker: 1}}\npolicy: {{deadline: 3s, max_restarts: 9}}\n")
    done = local.run()
    assert done.code == 100
    assert " at its deadline" in done.err
    assert len(done.lines["worker/0"]) <= 2


@pytest.mark.extended
def test_a_task_that_sigterm_from_outside_ends_is_restarted_before_its_deadline(local: Local) -> None:
    command = "command: [sh, -c, 'test -e again && exit 0; echo > again; kill -TERM $$']\n"
    local.write(f"strategy: custom\n{command}roles: {{worker: 1}}\npolicy: {{max_restarts: 1, deadline: 10m}}\n")
    assert local.run().code == 0


@pytest.mark.extended
def test_a_task_that_sigterm_ends_is_restarted_in_a_local_run(local: Local) -> None:
    command = "command: [sh, -c, 'test -e again && exit 0; echo > again; kill -TERM $$']\n"
    local.write(f"strategy: custom\n{command}roles: {{worker: 1}}\npolicy: {{max_restarts: 1}}\n")
    done = local.run()
    assert done.code == 0
    assert "worker/0 failed with SIGTERM; restart in 2 s (1 of 1)" in done.err


def test_an_evaluator_sees_the_last_checkpoint(local: Local) -> None:
    local.write(
        "strategy: custom\ncommand: 'true'\n"
        "roles: {worker: 1, evaluator: {replicas: 1, command: [sh, -c, 'sleep 0.5; echo scored']}}\n",
    )
    done = local.run()
    assert done.code == 0
    assert "evaluator/0 may run for up to" in done.err
    assert done.lines["evaluator/0"] == ["scored"]


def test_long_output_arrives_complete_in_order_and_split_like_journald(local: Local) -> None:
    local.write(
        CUSTOM + "roles: {worker: 2}\n",
        r"""
        import sys
        for number in range(20_000):
            print(number, "é")
        print("x" * 100_000)
        sys.stdout.buffer.write(b"caf\xe9 \x1b[31m\n")
        """,
    )
    done = local.run()
    assert done.code == 0
    for task in ("worker/0", "worker/1"):
        lines = done.lines[task]
        assert lines[:20_000] == [f"{number} é" for number in range(20_000)]
        assert [len(line) for line in lines[20_000:23_000]] == [48 * 1024, 48 * 1024, 100_000 - 96 * 1024, 10]
        assert lines[-1] == "caf\ufffd ?[31m"


@pytest.mark.extended
def test_two_runs_at_once_use_distinct_ports(local: Local) -> None:
    local.write(
        "strategy: parameter_server\nstack: none\n"
        "command: [sh, -c, 'echo $TF_CONFIG; : > run-$TFCTL_RUN-$TFCTL_ROLE-$TFCTL_INDEX; "
        "until [ $(ls run-* | wc -l) = 10 ]; do sleep 0.1; done']\n"
        "roles: {chief: 1, ps: {per_host: 2, hosts: 'gpu[0]'}, worker: 2}\nports: 2222-2222\n"
    )
    first, second = local.begin(), local.begin()
    clusters = []
    for done in (local.end(first), local.end(second)):
        assert done.code == 0, done.err
        configs = {task: json.loads(lines[0]) for task, lines in done.lines.items()}
        assert {task: f"{c['task']['type']}/{c['task']['index']}" for task, c in configs.items()} == {
            task: task for task in ("chief/0", "ps/0", "ps/1", "worker/0", "worker/1")
        }
        cluster = configs["ps/1"]["cluster"]
        assert all(config["cluster"] == cluster for config in configs.values())
        assert {role: len(addresses) for role, addresses in cluster.items()} == {"chief": 1, "ps": 2, "worker": 2}
        clusters.append({address for addresses in cluster.values() for address in addresses})
    assert len(clusters[0] | clusters[1]) == 10
    assert all(address.startswith("127.0.0.1:") for address in clusters[0])


@pytest.mark.parametrize(
    ("job", "code", "said"),
    [
        ("strategy: custom\ncommand: no-such-program\nroles: {worker: 1}\n", 8, "no program no-such-program on PATH"),
        ("strategy: custom\ncommand: ./none.sh\nroles: {worker: 1}\n", 3, "worker/0: ./none.sh is not in the code"),
        ("strategy: custom\ncommand: python none.py\nroles: {worker: 1}\n", 3, "worker/0: none.py is not in the code"),
        ("strategy: custom\ncommand: ls\nenv: [ABSENT_X]\nroles: {worker: 1}\n", 3, "takes ABSENT_X from the shell"),
        ("strategy: parameter_server\ncommand: ls\nroles: {worker: 1}\n", 3, "parameter_server needs a chief"),
        ("strategy: custom\ncommand: ls\ncode: nowhere\nroles: {worker: 1}\n", 3, "nowhere is not a directory"),
        ("strategy: custom\ncommand: ls {nothing}\nroles: {worker: 1}\n", 3, "{nothing} is not a placeholder"),
    ],
)
def test_a_job_that_cannot_run_starts_no_task(local: Local, job: str, code: int, said: str) -> None:
    local.write(job)
    done = local.run()
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert not (local.folder / "tfctl-output").exists()


def test_output_may_be_another_directory(local: Local) -> None:
    local.write("strategy: custom\ncommand: [sh, -c, 'echo {output} $TFCTL_OUTPUT']\nroles: {worker: 1}\n")
    done = local.run("--output", "my results")
    where = str(local.folder / "my results")
    assert done.lines["worker/0"] == [f"{where} {where}"]


def test_git_ignores_the_output(local: Local) -> None:
    subprocess.run(["git", "init", "-q", local.folder], check=True)
    local.write("strategy: custom\ncommand: [sh, -c, 'echo 1 > $TFCTL_OUTPUT/checkpoint']\nroles: {worker: 1}\n")
    assert local.run().code == 0
    assert (local.folder / "tfctl-output/digits/checkpoint").exists()
    assert not [name for name in select(local.folder).names if name.startswith("tfctl-output")]


@pytest.mark.extended
def test_horovod_ranks_meet_again_after_one_has_failed(local: Local) -> None:
    """Ranks as Horovod's are: each leaves its address where all meet, and waits for that of the others."""
    local.write(
        "strategy: horovod\nstack: none\ncommand: python train.py\nroles: {worker: 3}\n",
        """
        import http.client, os, pathlib, sys, time
        rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
        place = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])

        def ask(method, key, body=None):
            connection = http.client.HTTPConnection(*place, timeout=10)
            connection.request(method, f"/global/{key}", body)
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == 200 else None

        ask("PUT", rank, str(os.getpid()))
        while None in (found := [ask("GET", other) for other in range(size)]):
            time.sleep(0.01)
        ask("PUT", f"seen-by-{rank}", "1")
        while rank == 0 and None in [ask("GET", f"seen-by-{other}") for other in range(size)]:
            time.sleep(0.01)
        print(len(set(found)), "met by", os.environ["HOROVOD_GLOO_IFACE"], flush=True)
        failed = pathlib.Path(os.environ["TFCTL_OUTPUT"], str(rank))
        if not failed.exists():
            failed.touch()
            sys.exit(1)
        """,
    )
    done = local.run()
    assert done.code == 0, done.err
    assert {len(lines) for lines in done.lines.values()} == {2}, done.lines
    assert {line.split(" by ")[0] for lines in done.lines.values() for line in lines} == {"3 met"}


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("strategy: custom\ncommand: sudo python train.py\n", "`sudo` in the command: tasks run as the user tfctl"),
        ("strategy: custom\ncommand: source x\n", "`source` is a builtin of shells, and no shell runs the command"),
        ("strategy: custom\ncommand: bash missing.sh\n", "missing.sh is not in the code"),
        (f"{CUSTOM}env: {{CUDA_VISIBLE_DEVICES: 0}}\n", "env: CUDA_VISIBLE_DEVICES is set by tfctl for each task"),
        (f"{CUSTOM}output: gs://b/c\n", "output: 'gs://b/c' is a URL"),
        ("strategy: custom\ncommand: python train.py {a_hosts}\n", "command: {a_hosts} is not a placeholder"),
    ],
)
def test_run_refuses_the_jobs_that_start_refuses(job: str, said: str, local: Local) -> None:
    local.write(f"{job}roles: {{worker: 1}}\n", "print('ran')\n")
    done = local.run()
    assert (done.code, done.out) == (3, "")
    assert said in done.err


def test_run_says_what_check_says_of_the_code(local: Local) -> None:
    local.write(CUSTOM + "roles: {worker: 1}\n", "import os\nos.environ.setdefault('TF_CONFIG', '')\n")
    done = local.run()
    assert done.code == 0
    assert "train.py, line 2 changes TF_CONFIG, which tfctl sets for each task: remove that line\n" in done.err


def test_a_run_without_output_makes_no_directory(local: Local) -> None:
    local.write(CUSTOM + "output: none\nroles: {worker: 1}\n", "import os\nprint('TFCTL_OUTPUT' in os.environ)\n")
    done = local.run()
    assert (done.code, done.lines["worker/0"]) == (0, ["False"])
    assert "output" not in done.err and not (local.folder / "tfctl-output").exists()
    done = local.run("--output", "here")
    assert done.lines["worker/0"] == ["True"] and (local.folder / "here").is_dir()
