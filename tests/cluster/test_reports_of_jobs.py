"""`tfctl report` and `tfctl sweep` against three hosts."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from loopback import MAX_SESSIONS
from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts
from tfctl.node import names

#: Records 101 steps of 32 examples, ten seconds for the first one and twenty for the others.
TIMINGS = {"time": 1.0, "began": 1.0, "steps": 101, "examples": 3232, "seconds": 30.0, "first_step": 10.0,
           "first_steps": 1, "input_wait": 1.0}  # fmt: skip


#: A task that runs until this file exists.
UNTIL = "command: [sh, -c, 'until test -e {flag}; do sleep 0.05; done']\nroles: {{worker: 1}}\nenv: {{N: 0}}\n"


def recording(roles: str = "{worker: 2}") -> str:
    """Return a job whose tasks write timings, as tfctl_runtime does."""
    script = 'printf "%s\\n" "$1" > ../$2/timings.jsonl'
    return f"command: [sh, -c, '{script}', sh, '{json.dumps(TIMINGS)}', '{{role}}-{{index}}']\nroles: {roles}\n"


def reported(hosts: Hosts, *words: object) -> Any:
    return json.loads(hosts.ok("report", *words, "-o", "json"))


def test_report_compares_jobs_by_their_timings_and_pull_copies_them(hosts: Hosts, tmp_path: Path) -> None:
    hosts.ok("start", hosts.file("two", recording()), "--wait")
    hosts.ok("start", hosts.file("one", recording("{worker: 1}")), "--wait")
    hosts.ok("stop", "two")
    found = reported(hosts, "two", "one")
    runs = {run["job"]: run for run in found["runs"]}
    assert (runs["two"]["examples_per_second"], runs["two"]["seconds"], runs["two"]["hosts"]) == (320.0, 30.0, 2)
    assert (runs["two"]["speed_up"], runs["two"]["efficiency"]) == (2.0, 1.0)
    assert [task["input_wait"] for task in runs["two"]["tasks"]] == [0.05, 0.05]
    alone = hosts.ok("report", "one")
    assert "worker/0" in alone
    assert hosts("report", "two", "three").code == 7

    hosts.ok("pull", "two", tmp_path)
    assert json.loads((tmp_path / "attempt-1/worker-1.timings.jsonl").read_text()) == TIMINGS


def test_report_shows_how_long_a_restarted_task_has_run(hosts: Hosts) -> None:
    """Its timings are those of the last run alone."""
    fails_once = recording("{worker: 1}").replace("timings.jsonl", "timings.jsonl; mkdir ../$2/again || exit 0; exit 1")
    hosts.ok("start", hosts.file("again", fails_once + "policy: {max_restarts: 1}\n"), "--wait")
    [run] = reported(hosts, "again")["runs"]
    [task] = run["tasks"]
    assert (task["source"], task["examples_per_second"]) == ("timings", 160.0)
    assert run["seconds"] == task["seconds"] != TIMINGS["seconds"]


def test_report_asks_about_more_jobs_than_sshd_allows_sessions(hosts: Hosts) -> None:
    names = [f"absent-{number}" for number in range(MAX_SESSIONS + 1)]
    for name in hosts.names:
        hosts.slow_down(name)
    done = hosts("report", *names)
    assert done.code == 7, done
    assert "no host has a job 'absent-0'" in done.err


def test_report_refuses_jobs_of_several_inventories(hosts: Hosts) -> None:
    inventories = hosts.inventory, hosts.told("node2")
    files = [hosts.file(f"of-{path.stem}", f"{STAY}inventory: {path}\nroles: {{worker: 1}}\n") for path in inventories]
    done = hosts.with_inventory(None, "report", *files)
    assert done.code == 2, done
    assert all(str(path) in done.err for path in inventories)
    assert hosts("report", *files).code == 7, "the option holds for all of them"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFCTL_INVENTORY", str(inventories[1]))
        done = hosts.with_inventory(None, "report", files[0], "absent")
    assert done.code == 7, "a name alone means a job on the hosts of the first"


def test_report_reads_what_tasks_print(hosts: Hosts) -> None:
    printed = "command: [sh, -c, 'echo compiling; echo step 10 of 4.5/s; echo step 20 of 6.5/s']\nroles: {worker: 2}\n"
    pattern = r"progress: 'step (?P<step>\d+) of (?P<examples_per_second>\S+)/s'"
    hosts.ok("start", hosts.file("prints", printed + pattern), "--wait")
    [run] = reported(hosts, "prints")["runs"]
    assert [(task["source"], task["steps"]) for task in run["tasks"]] == [("log", 20)] * 2
    assert run["examples_per_second"] == 13.0

    epoch, evaluated = "200/200 - 2s - 10ms/step - loss: 0.5", "313/313 - 9s - 30ms/step - loss: 0.9"
    keras = f"command: [sh, -c, 'echo Epoch 1/2; echo {epoch}; echo {evaluated}']\nroles: {{worker: 1}}\n"
    for name, progress in (("keras", ""), ("named", "progress: keras\n")):
        hosts.ok("start", hosts.file(name, keras + progress), "--wait")
        [run] = reported(hosts, name)["runs"]
        [task] = run["tasks"]
        assert (task["steps"], task["steps_per_second"], task["loss"]) == (200, 100.0, 0.5)


def test_a_task_cannot_make_root_read_another_file(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("hostile", recording("{worker: 2}")), "--wait")
    secret = hosts.folder / "secret"
    secret.write_text(json.dumps(TIMINGS) + "\n")
    for index in (0, 1):
        file = hosts.trees[f"node{index + 1}"] / names.timings_file("hostile", 1, "worker", index)
        file.unlink()
        file.symlink_to(secret) if index else os.mkfifo(file)
    [run] = reported(hosts, "hostile")["runs"]
    assert [(task["source"], task["steps"]) for task in run["tasks"]] == [("run time", None)] * 2


def test_sweep_runs_each_setting_once_and_continues_after_a_failure(hosts: Hosts) -> None:
    """The run with two workers fails until the file `fixed` is there."""
    text = recording("{worker: 1}").replace('printf "', 'test {index} = 0 -o -e "$FIXED" && printf "')
    fixed = hosts.trees["node2"] / "srv/tfctl/fixed"
    file = hosts.file("sweep", f"{text}env: {{FIXED: {fixed}}}\n")
    words = ["sweep", file, "--set", "roles.worker.replicas=1,2"]

    planned = json.loads(hosts.ok(*words, "--dry-run", "-o", "json"))["runs"]
    assert [(run["job"], run["tasks"], run["done"]) for run in planned] == [
        ("sweep-1", 1, False),
        ("sweep-2", 2, False),
    ]
    first = hosts(*words)
    assert first.code == 100, first
    assert "1 run has no result" in first.err

    fixed.touch()
    second = hosts(*words, "-o", "json")
    assert second.code == 0, second
    assert "sweep-1: already succeeded" in second.err
    found = json.loads(second.out)
    assert [(run["settings"], run["speed_up"]) for run in found["runs"]] == [
        ({"roles.worker.replicas": "1"}, 1.0), ({"roles.worker.replicas": "2"}, 2.0),
    ]  # fmt: skip
    assert reported(hosts, "sweep-sweep.json") == found

    other = hosts(*words, "-e", "SEED=1")
    assert (other.code, "a different job file or different variables (-e)" in other.err) == (2, True), other
    file.write_text(file.read_text() + "# changed\n")
    changed = hosts(*words)
    assert changed.code == 2, changed
    assert "delete sweep-sweep.json and the output directories of its runs" in changed.err


def test_sweep_prints_an_error_as_json_when_no_run_has_succeeded(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'exit 3']\nroles: {worker: 1}\nenv: {N: 0}\npolicy: {max_restarts: 0}\n"
    done = hosts("sweep", hosts.file("vain", text), "--set", "env.N=1", "-o", "json")
    assert done.code == 100, done
    error = json.loads(done.out)["error"]
    assert (error["exit"], error["message"]) == (100, "1 run has no result")
    assert done.err.count("1 run has no result") == 1


def until_flag(hosts: Hosts, name: str) -> tuple[Path, Path]:
    """Return a job file, and the file whose existence ends its runs."""
    flag = hosts.trees["node1"] / f"srv/tfctl/{name}.flag"
    return hosts.file(name, UNTIL.format(flag=flag)), flag


@pytest.mark.parametrize("sends", ["keep", "show"])
def test_sweep_waits_for_the_run_that_an_interrupted_call_has_started(hosts: Hosts, sends: str) -> None:
    """The first call is interrupted while it starts the run (`keep`), or when it waits for its end (`show`)."""
    file, flag = until_flag(hosts, f"cut-{sends}")
    words = ["sweep", file, "--set", "env.N=1", "-o", "json"]
    with hosts.delayed("node1", sends) as (arrived, go_on), hosts.begin(*words) as client:
        wait_until(arrived)
        client.process.send_signal(signal.SIGINT)
        go_on()
        assert client.done().code == 130
    with hosts.begin(*words) as client:
        hosts.forget("node1")
        wait_until(lambda: hosts.shown("node1"))
        flag.touch()
        done = client.done()
    assert done.code == 0, done
    [run] = json.loads(done.out)["runs"]
    assert (run["job"], run["attempt"]) == (f"cut-{sends}-1", 1)


def test_sweep_ends_when_a_job_with_the_name_of_a_run_is_running(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("busy-1", STAY + "roles: {worker: 1}\n"))
    short = hosts.file("busy", "command: [sh, -c, 'exit 0']\nroles: {worker: 1}\nenv: {N: 0}\n")
    done = hosts("sweep", short, "--set", "env.N=1,2")
    assert done.code == 5, done
    assert "wait for its end with `tfctl wait busy-1`" in done.err
    assert hosts.alive() == ["tfctl-busy-1-worker-0.service"]


def test_a_second_sweep_with_the_same_file_of_results_is_refused(hosts: Hosts) -> None:
    file = hosts.file("twice", f"{STAY}roles: {{worker: 1}}\n")
    with hosts.begin("sweep", file, "--set", "env.N=1") as first:
        wait_until(lambda: hosts.alive() == ["tfctl-twice-1-worker-0.service"], lambda: first.err)
        second = hosts("sweep", file, "--set", "env.N=2")
        assert (second.code, "another sweep writes to twice-sweep.json" in second.err) == (5, True)
        # The unit is alive a moment before its start is complete, and until then `stop` refuses.
        wait_until(lambda: hosts("stop", "twice-1").code == 0, lambda: first.err)
        first.done()


def test_sweep_does_not_mix_results_of_different_values_from_the_shell(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "sweep",
        hosts.file("shell", "command: [sh, -c, 'exit 0']\nroles: {worker: 1}\n"),
        "--set",
        "env.N=1",
        "-e",
        "RATE",
    ]
    monkeypatch.setenv("RATE", "0.1")
    assert hosts(*words).code == 0
    monkeypatch.setenv("RATE", "0.2")
    changed = hosts(*words)
    assert (changed.code, "contains results for a different job file or different variables" in changed.err) == (
        2,
        True,
    )


def test_sweep_continues_after_a_run_that_needs_more_gpus_than_a_host_has(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'exit 0']\nroles: {worker: 1}\n"
    done = hosts("sweep", hosts.file("greedy", text), "--set", "roles.worker.gpus=64,0")
    assert done.code == 100, done
    assert "64 GPUs requested" in done.err
    assert "1 run has no result" in done.err
    assert hosts.status("greedy-0")["state"] == "succeeded"


def test_sweep_continues_after_a_run_that_was_deleted_meanwhile(hosts: Hosts) -> None:
    file, flag = until_flag(hosts, "gone")
    words = ["sweep", file, "--set", "env.N=1,2", "-o", "json"]
    with hosts.delayed("node1", "show") as (arrived, go_on), hosts.begin(*words) as client:
        wait_until(arrived)
        (hosts.trees["node1"] / names.job_dir("gone-1")).rename(hosts.trees["node1"] / "deleted")
        flag.touch()
        go_on()
        done = client.done()
    assert done.code == 100, done
    assert "no host has attempt 1 of job 'gone-1' any more" in done.err
    assert [run["job"] for run in json.loads(done.out)["runs"]] == ["gone-2"]


def test_sweep_reads_a_run_again_if_a_host_was_silent_when_it_was_read(hosts: Hosts) -> None:
    printed = "command: [sh, -c, 'echo 200/200 - 2s - 10ms/step - loss: 0.5']\nroles: {worker: 2}\nenv: {N: 0}\n"
    words = ["sweep", hosts.file("half", printed), "--set", "env.N=1", "-o", "json"]
    with hosts.delayed("node2", "logs") as (arrived, _), hosts.begin(*words) as client:
        wait_until(arrived)
        hosts.drop("node2")
        done = client.done()
    assert done.code == 100, done
    assert "the figures of half-1 are incomplete" in done.err
    done = hosts(*words)
    assert done.code == 0, done
    [run] = json.loads(done.out)["runs"]
    assert (run["attempt"], [task["source"] for task in run["tasks"]]) == (1, ["log", "log"])
