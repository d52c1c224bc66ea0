"""`tfctl run` chooses what the tasks of each role run with, makes it, and explains the failures of a first run."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from package_index import serving

from tests.unit.local.local_run import Local
from tests.unit.local.small_stack import Site
from tfctl.cli import main

#: Prints what a task runs with.
SCRIPT = """
import os, sys, tensorflow
print("TensorFlow", tensorflow.__version__, "in", os.path.basename(sys.prefix).partition("-")[0], flush=True)
"""
MIRRORED = "strategy: mirrored\ncommand: python train.py\nroles: {worker: 1}\n"
NO_TENSORFLOW = '{"python": "3.11.2", "packages": {}}'
TENSORFLOW = '{"python": "3.11.2", "packages": {"tensorflow": "2.14.0"}}'


@pytest.fixture
def site(local: Local, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A stack `mine` in the directory of the job, whose inventory names its directory."""
    (local.folder / "index").mkdir()
    with serving(local.folder / "index") as address:
        site = Site(local.folder, monkeypatch, address)
        site.stack()
        inventory(local, "")
        local.env |= {"PIP_CONFIG_FILE": "/dev/null", "UV_DEFAULT_INDEX": address}
        yield site


def inventory(local: Local, variables: str) -> None:
    (local.folder / "hosts.ini").write_text(
        f"[gpu]\nnode1 ansible_host=192.0.2.1\n[all:vars]\ntfctl_stack_dirs=['{local.folder}/stacks']\n{variables}"
    )


def active(local: Local, packages: str) -> None:
    """Let the active Python list these packages."""
    python = local.folder / "bin/python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo \'{packages}\' && exit\nexec {sys.executable} -S "$@"\n')


def test_the_stack_of_the_job_file_is_installed_and_runs_the_tasks(local: Local, site: Site) -> None:
    local.write(f"inventory: hosts.ini\nstack: mine\n{MIRRORED}", SCRIPT)
    done = local.run()
    assert (done.code, done.lines) == (0, {"worker/0": ["TensorFlow 2.15.1 in mine"]}), done.err
    assert "installing mine (TensorFlow 2.15.1" in done.err
    (environment,) = site.left()
    again = local.run()
    assert again.code == 0 and "install" not in again.err and site.left() == [environment]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_a_run_ends_its_installation_too(local: Local, site: Site, how: signal.Signals) -> None:
    local.write(f"inventory: hosts.ini\nstack: mine\n{MIRRORED}", SCRIPT)
    working = local.env["UV_DEFAULT_INDEX"]
    with socket.create_server(("127.0.0.1", 0)) as index:  # it never answers
        local.env["UV_DEFAULT_INDEX"] = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        running = local.begin()
        uv, _ = index.accept()
        with uv:
            running.send_signal(how)
            done = local.end(running)
            uv.settimeout(10)
            while uv.recv(4096):  # up to the end of the process that has asked
                pass
    assert done.code == (-9 if how == signal.SIGKILL else 130)
    assert how == signal.SIGKILL or (site.left() == [] and done.err.endswith("\ntfctl: interrupted\n"))
    local.env["UV_DEFAULT_INDEX"] = working
    assert local.run().lines == {"worker/0": ["TensorFlow 2.15.1 in mine"]}


def test_the_end_of_a_run_shows_its_tasks_its_output_and_the_next_command(local: Local) -> None:
    local.write("strategy: custom\ncommand: 'true'\nroles: {worker: 2}\n")
    said = local.run().err.splitlines()
    assert re.fullmatch(r"digits  attempt 1  custom  none  succeeded", said[1])
    assert [line.split()[:4] for line in said[2:5]] == [
        ["TASK", "HOST", "ADDRESS", "STATE"],
        *(["worker/0", "localhost", address, "succeeded"] for address in [said[3].split()[2]]),
        *(["worker/1", "localhost", address, "succeeded"] for address in [said[4].split()[2]]),
    ]
    assert said[-1] == f"output in {local.folder}/tfctl-output/digits; on your own machines: tfctl start job.yaml"
    local.write("strategy: custom\ncommand: 'false'\nroles: {worker: 1}\n")
    done = local.run()
    assert done.code == 100 and done.err.splitlines()[-1].endswith("; to try again: tfctl run job.yaml")


def test_states_are_coloured_on_a_terminal(local: Local) -> None:
    local.write("strategy: custom\ncommand: 'true'\nroles: {worker: 1}\n")
    ours, its = pty.openpty()
    words = [sys.executable, "-m", "tfctl", "run", "job.yaml"]
    environ = {**local.env, "TERM": "xterm", "NO_COLOR": ""}
    done = subprocess.run(words, cwd=local.folder, env=environ, stdin=its, stdout=its, stderr=its, timeout=60)
    shown = os.read(ours, 65536).decode()
    os.close(its)
    os.close(ours)
    assert done.returncode == 0
    assert "\x1b[32msucceeded" in shown and "?[32m" not in shown


@pytest.mark.usefixtures("site")
def test_each_role_has_its_own_stack(local: Local) -> None:
    local.write(
        "inventory: hosts.ini\nstrategy: custom\nstack: mine\ncommand: python train.py\n"
        "roles: {worker: 1, other: {replicas: 1, stack: none, command: [sh, -c, 'echo $VIRTUAL_ENV.']}}\n",
        SCRIPT,
    )
    local.env.pop("VIRTUAL_ENV", None)
    done = local.run()
    assert done.lines == {"worker/0": ["TensorFlow 2.15.1 in mine"], "other/0": ["."]}, done.err


@pytest.mark.parametrize(("term", "word"), [("xterm", b"\x1b[32msucceeded\x1b[0m"), ("dumb", b"  succeeded")])
def test_the_end_of_a_run_is_coloured_on_a_terminal_that_has_colours(local: Local, term: str, word: bytes) -> None:
    local.write("strategy: custom\ncommand: 'true'\nroles: {worker: 1}\n")
    ours, its = pty.openpty()
    words = [sys.executable, "-m", "tfctl", "run", "job.yaml"]
    subprocess.run(words, cwd=local.folder, env={**local.env, "TERM": term}, stdout=its, stderr=its, timeout=60)
    os.close(its)
    printed = os.read(ours, 65536)
    os.close(ours)
    assert word in printed and b"?[" not in printed, printed


@pytest.mark.usefixtures("site")
def test_without_a_stack_in_the_job_file_the_inventory_names_it(local: Local) -> None:
    inventory(local, "tfctl_stack=mine\n")
    local.write(f"inventory: hosts.ini\n{MIRRORED}", SCRIPT)
    assert local.run().lines == {"worker/0": ["TensorFlow 2.15.1 in mine"]}


@pytest.mark.parametrize(
    ("packages", "job", "code", "said"),
    [
        (TENSORFLOW, MIRRORED, 0, "no `stack:` is given: using the active Python, which has TensorFlow 2.14.0\n"),
        (NO_TENSORFLOW, MIRRORED, 2, "digits names no stack, and the active Python has no TensorFlow\n  → add"),
        (NO_TENSORFLOW, MIRRORED.replace("mirrored", "custom"), 0, "digits: 1 task runs here"),
        (NO_TENSORFLOW, f"stack: none\n{MIRRORED}", 0, "digits: 1 task runs here"),
        (NO_TENSORFLOW, f"inventory: none.ini\n{MIRRORED}", 2, "add `stack:`"),
        (NO_TENSORFLOW, f"stack: tf2.150\n{MIRRORED}", 3, "tfctl has no tf2.150\n  → did you mean tf2.15?"),
        # A mistake in the job file is reported before anything is downloaded.
        (NO_TENSORFLOW, f"stack: tf2.15\n{MIRRORED}".replace("train.py", "none.py"), 3, "none.py is not in the code"),
        (NO_TENSORFLOW, f"stack: tf2.21\n{MIRRORED}".replace("mirrored", "estimator").replace("worker", "chief"), 3,
         "strategy estimator: stack tf2.21 has"),
    ],
)  # fmt: skip
def test_without_a_stack_the_active_python_runs_the_tasks_if_it_has_tensorflow(
    local: Local, packages: str, job: str, code: int, said: str
) -> None:
    local.write(job, "print('ran')")
    active(local, packages)
    done = local.run()
    assert done.code == code, done.err
    assert said in done.err
    assert (done.lines == {"worker/0": ["ran"]}) == (code == 0)


def test_another_python_runs_the_tasks_on_request(local: Local) -> None:
    local.write(f"stack: tf2.15\n{MIRRORED}", "import sys; print(sys.flags.no_site)")
    assert local.run("--python", "active").lines == {"worker/0": ["1"]}
    assert local.run("--python", sys.executable).lines == {"worker/0": ["0"]}
    (local.folder / "venv/bin").mkdir(parents=True)
    (local.folder / "venv/bin/python").symlink_to(sys.executable)
    assert local.run("--python", "venv").lines == {"worker/0": ["0"]}
    for python in ("nowhere/python", "~no-such-user/python"):
        done = local.run("--python", python)
        assert done.code == 2 and f"--python: {python} is not a program" in done.err


def test_a_python_that_prints_noise_is_used(local: Local) -> None:
    local.write(f"stack: none\n{MIRRORED}", "print('ran')")
    (local.folder / "bin/python").write_text(f"#!/bin/sh\nprintf '\\377\\n'\nexec {sys.executable} -S \"$@\"\n")
    assert local.run("--python", "active").lines == {"worker/0": ["\ufffd", "ran"]}


def test_only_the_last_traceback_tells_what_cannot_be_imported(local: Local) -> None:
    script = "import traceback\ntry: import cv2\nexcept ImportError: traceback.print_exc()\nopen('none.csv')\n"
    local.write(f"stack: none\npolicy: {{max_restarts: 0}}\n{MIRRORED}", script)
    done = local.run()
    assert done.code == 100 and "cannot import" not in done.err


def test_a_machine_without_stacks_uses_the_active_python_and_says_so(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.write(f"stack: tf2.15\n{MIRRORED}", "print('ran')")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    done = local.run()
    assert done.lines == {"worker/0": ["ran"]}
    assert "using the active Python: there are no stacks for Linux on riscv64\n" in done.err


def test_options_that_were_required_before_are_still_accepted(local: Local) -> None:
    local.write("strategy: custom\ncommand: 'true'\nroles: {worker: 1}\n")
    assert local.run("--local").code == 0


def test_without_uv_a_stack_cannot_be_installed_but_a_job_can_be_written(
    local: Local, site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local.write(f"stack: tf2.15\n{MIRRORED}", SCRIPT)
    (local.folder / "tfctl-env").mkdir()
    monkeypatch.setattr(sys, "executable", str(local.folder / "tfctl-env/python"))
    local.env["PATH"] = f"{local.folder}/bin:/usr/bin:/bin"
    done = local.run()
    assert (done.code, done.out) == (8, "")
    assert "uv is not installed on this machine\n  → install it: pip install uv" in done.err
    assert site.left() == []
    monkeypatch.setenv("PATH", "/nowhere")
    assert main.run(["init", str(local.folder / "new"), "-s", "mirrored"]) == 0
    assert "stack: tf2.15" in (local.folder / "new/job.yaml").read_text()
    capsys.readouterr()


def test_requirements_that_cannot_be_resolved_without_an_index_are_no_fault_of_the_job_file(
    local: Local, site: Site
) -> None:
    local.write(f"inventory: hosts.ini\nstack: mine\nrequirements: requirements.txt\n{MIRRORED}", SCRIPT)
    (local.folder / "requirements.txt").write_text("frames\n")
    local.env |= {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0", "UV_OFFLINE": ""}
    site.stack()
    assert local.run().code == 8


@pytest.mark.usefixtures("site")
def test_a_module_that_cannot_be_imported_is_named_with_the_place_to_add_it(local: Local) -> None:
    job = f"inventory: hosts.ini\nstack: mine\npolicy: {{max_restarts: 0}}\n{MIRRORED}"
    local.write(job, "import cv2")
    done = local.run()
    assert done.code == 100
    assert (
        "worker/0 cannot import cv2\n  write opencv-python-headless to requirements.txt, and add "
        "`requirements: requirements.txt` to job.yaml\n"
    ) in done.err
    local.write(job, "import tensorflow.contrib")
    assert "tensorflow 2.15.1 does not have it: change the script, or `stack:` in job.yaml" in local.run().err
    local.write(job.replace("mine", "none"), "import tensorflow")
    assert "worker/0 cannot import tensorflow\n  add `stack: tf2.15` to job.yaml" in local.run().err


def test_a_task_that_fails_at_once_twice_in_the_same_way_is_not_started_again(local: Local) -> None:
    local.write(f"stack: none\n{MIRRORED}", "print('begun'); raise SystemExit(7)")
    done = local.run()
    assert (done.code, done.lines) == (100, {"worker/0": ["begun", "begun"]})
    assert "(2 of 3)" not in done.err
    assert "worker/0 has failed twice in the same way within 10 s of its start: it is not started again" in done.err
    assert "worker/0 on localhost failed with exit code 7 twice within 10 s of its start" in done.err


def test_a_task_that_fails_in_another_way_is_started_again(local: Local) -> None:
    script = "import os, sys; sys.exit(1 + len([open(f'{os.getpid()}', 'w')] + os.listdir('.')))"
    local.write(f"stack: none\npolicy: {{max_restarts: 2}}\n{MIRRORED}", f"print('begun', flush=True); {script}")
    done = local.run()
    assert (done.code, len(done.lines["worker/0"])) == (100, 3)
    assert "failed with exit code" in done.err and "twice" not in done.err


def test_a_python_without_the_requirements_is_refused(local: Local) -> None:
    (local.folder / "requirements.txt").write_text("frames>=2\n")
    local.write(f"stack: none\nrequirements: requirements.txt\n{MIRRORED}", "")
    done = local.run("--python", "active")
    assert done.code == 8 and "the active Python lacks packages of requirements.txt: frames>=2" in done.err


def test_the_logs_are_objects_and_the_talk_is_on_stderr(local: Local) -> None:
    local.write("strategy: custom\ncommand: echo done\nroles: {worker: 1}\n")
    done = local.run("-o", "json")
    (line,) = done.out.splitlines()
    assert json.loads(line)["line"] == "done" and "succeeded" in done.err
