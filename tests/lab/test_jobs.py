"""Jobs on real nodes from start to end: they succeed, fail or are stopped, and leave nothing."""

from __future__ import annotations

import json
import signal
import subprocess

from tests.lab.jobs import Jobs, lines_of_task, wait_for

ECHO = """
    command: [sh, -c, "echo hello from {role}/{index}; sleep 1; echo bye"]
    roles: {ps: 1, worker: 4}
"""
TICK = """
    command: [sh, -c, "while :; do echo tick; sleep 0.5; done"]
    roles: {ps: 2, worker: 4}
"""


def test_job_runs_on_all_hosts_and_succeeds(jobs: Jobs) -> None:
    done = jobs("start", jobs.file("echo", ECHO), "--wait")
    assert (done.returncode, done.stdout) == (0, "echo\n"), done.stderr
    found = jobs.status("echo")
    assert found["state"] == "succeeded"
    assert [(t["role"], t["index"], t["host"], t["port"]) for t in found["tasks"]] == [
        ("ps", 0, "node1", 2222),
        ("worker", 0, "node1", 2223),
        ("worker", 1, "node2", 2222),
        ("worker", 2, "node3", 2222),
        ("worker", 3, "node4", 2222),
    ]
    workers = [task for task in found["tasks"] if task["role"] == "worker"]
    assert all(task["state"] == "succeeded" and task["exit_code"] == 0 for task in workers)
    assert all(task["started"] <= task["finished"] for task in workers)
    logs = jobs.ok("logs", "--job", "echo")
    assert [lines_of_task(logs, f"worker/{n}") for n in range(4)] == [
        [f"hello from worker/{n}", "bye"] for n in range(4)
    ]


def test_job_fails_and_stops_its_other_tasks_when_one_task_fails(jobs: Jobs) -> None:
    text = """
        command: [sh, -c, "sleep 1; test {role}{index} != worker1 || exit 7; sleep 60"]
        roles: {ps: 1, worker: 3}
    """
    done = jobs("start", jobs.file("fails", text), "--wait")
    assert done.returncode == 100
    assert "worker/1 on node2 failed with exit code 7" in done.stderr
    assert jobs.states("fails") == {
        "ps/0": "stopped", "worker/0": "stopped", "worker/1": "failed", "worker/2": "stopped",
    }  # fmt: skip
    assert jobs("wait", "fails").returncode == 100
    assert jobs("status", "fails").returncode == 0
    assert not any("sleep" in line for lines in jobs.traces().values() for line in lines)


def test_stop_sends_sigterm_then_kills_and_leaves_nothing(jobs: Jobs) -> None:
    file = jobs.file("stubborn", "command: python3 stubborn.py\nroles: {worker: 2}\npolicy: {grace: 2s}\n")
    (file.parent / "stubborn.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
        "end = time.monotonic() + 99\n"
        "while time.monotonic() < end: time.sleep(0.1)\n"
    )
    jobs.ok("start", file)
    wait_for(lambda: set(jobs.states("stubborn").values()) == {"running"}, 10)
    jobs.ok("stop", "stubborn")
    assert set(jobs.states("stubborn").values()) == {"stopped"}
    assert jobs("wait", "stubborn").returncode == 103
    assert lines_of_task(jobs.ok("logs", "--job", "stubborn"), "worker/0") == ["asked"]
    jobs.assert_nothing_left()
    assert jobs("stop", "stubborn").returncode == 0
    assert jobs("stop", "never-was").returncode == 7


def test_start_refuses_a_running_job_and_numbers_the_next_attempt(jobs: Jobs) -> None:
    file = jobs.file("twice", TICK)
    jobs.ok("start", file)
    again = jobs("start", file)
    assert again.returncode == 5
    assert "twice" in again.stderr
    assert set(jobs.states("twice").values()) == {"running"}
    jobs.ok("stop", file)
    jobs.ok("start", file)
    assert jobs.status("twice")["attempt"] == 2


def test_start_succeeds_once_when_two_run_at_the_same_time(jobs: Jobs) -> None:
    file = jobs.file("race", TICK)
    both = [jobs.begin("start", file) for _ in range(2)]
    output = [process.communicate(timeout=60) for process in both]
    assert sorted(process.returncode for process in both) == [0, 5], output
    assert set(jobs.states("race").values()) == {"running"}


def test_start_is_refused_when_one_host_lacks_the_program(jobs: Jobs) -> None:
    for host in ("node1", "node2", "node4"):
        jobs.lab.shell(host, "sudo install -m 755 /bin/sleep /usr/local/bin/only-here")
    done = jobs("start", jobs.file("lacks", "command: only-here 60\nroles: {worker: 4}\n"))
    assert done.returncode == 8
    assert "node3" in done.stderr
    assert "only-here" in done.stderr
    assert jobs("status", "lacks").returncode == 7
    jobs.assert_nothing_left()


def test_start_avoids_a_port_in_use_or_refuses_when_no_other_is_allowed(jobs: Jobs) -> None:
    squat = "sudo systemd-run --quiet --collect --unit=squatter python3 -m http.server 3000"
    jobs.lab.shell("node2", squat)
    try:
        wait_for(lambda: "3000" in jobs.lab.shell("node2", "ss -Hltn"), 10)
        done = jobs("start", jobs.file("squat", "command: sleep 60\nports: 3000-3000\nroles: {worker: 4}\n"))
        assert done.returncode == 5
        assert "node2" in done.stderr
        assert "3000" in done.stderr
        jobs.ok("start", jobs.file("passes", "command: sleep 60\nports: 3000-3001\nroles: {worker: 4}\n"))
        assert [task["port"] for task in jobs.status("passes")["tasks"]] == [3000, 3001, 3000, 3000]
    finally:
        jobs.lab.shell("node2", "sudo systemctl stop squatter")


def test_start_with_wait_leaves_the_job_running_after_ctrl_c(jobs: Jobs) -> None:
    file = jobs.file("detached", TICK)
    with jobs.begin("start", file, "--wait") as process:
        assert process.stderr
        try:
            # Tasks run before this line is printed, but until then Ctrl-C undoes the start.
            assert any("6 tasks run on 4 hosts" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert "tfctl stop detached" in process.stderr.read()
        finally:
            process.kill()
    assert set(jobs.states("detached").values()) == {"running"}


def test_start_is_undone_when_the_command_cannot_be_executed(jobs: Jobs) -> None:
    """The file exists and is executable, but its interpreter is missing."""
    file = jobs.file("broken", "command: ./run\nroles: {worker: 2}\n")
    run = file.parent / "run"
    run.write_text("#!/no/such/interpreter\n")
    run.chmod(0o755)
    done = jobs("start", file, "--wait")
    assert done.returncode in (6, 100), done.stderr
    assert "worker/" in done.stderr
    jobs("stop", "broken")
    jobs.assert_nothing_left()


def test_arguments_and_variables_reach_the_task_unchanged(jobs: Jobs) -> None:
    env = {
        "QUOTES": "a\"b'c", "SIGNS": "100% $HOME ${HOME} `x` back\\slash\\", "SPACE": " tab\there\nnew line ",
        "LETTERS": "größer, 漢字, 🙂", "HASH": "# ; no comment", "JSON": '{"a": [1, "b"]}', "EMPTY": "",
        "LONG": "x" * 100_000,
    }  # fmt: skip
    words = ["%n %s $HOME ${HOME}", "quo\"te'", "back\\slash\\", "tab\there\nline", "größer 🙂", "", "{}", "; # |"]
    command = json.dumps(["python3", "show.py", *words], ensure_ascii=False)
    variables = json.dumps({**env, "NAMES": json.dumps(list(env))}, ensure_ascii=False)
    written = variables.replace("${", "$${")
    file = jobs.file("values", f"command: {command}\nenv: {written}\nroles: {{worker: 1}}\n")
    (file.parent / "show.py").write_text(
        "import json, os, sys\n"
        "names = json.loads(os.environ['NAMES'])\n"
        "print(json.dumps([sys.argv[1:], {name: os.environ[name] for name in names}]))\n"
    )
    jobs.ok("start", file, "--wait")
    lines = [json.loads(line)["line"] for line in jobs.ok("logs", "--job", "values", "-o", "json").splitlines()]
    # journald breaks a line after 48 KiB.
    assert json.loads("".join(lines)) == [words, env]


def test_code_directory_of_a_task_is_writable(jobs: Jobs) -> None:
    file = jobs.file("code", "command: python3 pkg/main.py\nroles: {worker: 2}\n")
    (file.parent / "pkg").mkdir(exist_ok=True)
    (file.parent / "pkg" / "main.py").write_text(
        "import pathlib\npathlib.Path('below').mkdir()\nprint(pathlib.Path.cwd())\n"
    )
    out = jobs.ok("start", file, "--follow")
    assert lines_of_task(out, "worker/1")[0].startswith("/var/lib/tfctl/jobs/code/")


def test_units_pass_systemd_analyze_verify(jobs: Jobs) -> None:
    jobs.ok("start", jobs.file("verified", TICK + "    policy: {deadline: 1h}\n"))
    for host in ("node1", "node2"):
        units = "/run/systemd/system/tfctl-verified-*.service /run/systemd/system/tfctldeadline-verified-*.*"
        verify = f"sudo systemd-analyze verify $(ls {units}) 2>&1"
        assert jobs.lab.shell(host, verify) == ""
        user = "sudo systemctl show -P User $(cd /run/systemd/system; ls tfctl-verified-*.service)"
        assert set(jobs.lab.shell(host, user).split()) == {"tfctl"}


def test_start_names_an_unreachable_host_and_starts_nothing(jobs: Jobs) -> None:
    lines = jobs.lab.inventory.read_text().replace(
        jobs.lab.hosts()["node4"]["ansible_host"], jobs.lab.hosts()["node4"]["ansible_host"][:-2] + "99"
    )
    inventory = jobs.folder / "away.ini"
    inventory.write_text(lines)
    command = [*jobs.command("start", jobs.file("away", TICK))[:-1], str(inventory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=jobs.folder)
    assert done.returncode == 4
    assert "node4" in done.stderr
    jobs.assert_nothing_left()


def test_secrets_reach_a_task_and_no_command_line_and_no_file_that_others_can_read(jobs: Jobs) -> None:
    """The node's processes, units and files are searched for the value, which only the task's environment has."""
    secret = "hunter2-b6d1"
    text = """
        env_file: .env
        env: {RATE: 1e-3}
        command: [sh, -c, 'test "$RATE" = 1e-3 && test ${#API_KEY} = 12 && echo ready && exec sleep 600']
        roles: {worker: 1}
    """
    file = jobs.file("secret", text)
    (file.parent / ".env").write_text(f"API_KEY='{secret}'\n")
    started = jobs("start", file)
    assert started.returncode == 0 and secret not in started.stdout + started.stderr
    wait_for(lambda: "ready" in jobs.ok("logs", "--job", "secret"), 20)
    pattern = f"[{secret[0]}]{secret[1:]}"  # does not match the command line of the search itself
    assert "sleep 600" in jobs.root("node1", "ps -e -o args")
    found = jobs.root(
        "node1",
        f"ps -e -o args | grep -e '{pattern}'; systemctl show tfctl-secret-worker-0 | grep -e '{pattern}'; "
        f"journalctl -q | grep -e '{pattern}'; "
        f"grep -rlse '{pattern}' /run/tfctl /run/systemd /var/lib/tfctl | xargs -r stat -c '%a %U'; true",
    )
    assert set(found.splitlines()) == {"600 root"}
