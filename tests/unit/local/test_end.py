"""Whatever ends a local run, nothing of it is left."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.local.local_run import Local, lives, wait_for
from tfctl.local import supervisor

#: A task, its child that ignores SIGTERM, and what a double fork into a session of its own leaves.
FAMILY = """
    import os, signal, sys, time
    def note(name):
        with open(name + os.environ["TFCTL_INDEX"] + ".new", "w") as file:
            file.write(f"{os.getpid()}\\n")
        os.rename(file.name, file.name[:-4])
    def wait():
        time.sleep(600)
        os._exit(0)
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note("child")
        wait()
    if not os.fork():
        os.setsid()
        if not os.fork():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note("daemon")
            wait()
        os._exit(0)
    def farewell(*_):
        print("goodbye", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, farewell)
    note("task")
    EXTRA
    wait()
"""
JOB = "strategy: custom\ncommand: python train.py\nroles: {worker: 2}\npolicy: {grace: 1s}\n"
NAMES = ("task0", "child0", "daemon0", "task1", "child1", "daemon1")


def family(local: Local) -> list[int]:
    return [pid for name in NAMES for pid in local.numbers(name)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_tasks_with_sigterm_and_leaves_no_process(local: Local, how: signal.Signals) -> None:
    local.write(JOB, FAMILY.replace("EXTRA", ""))
    running = local.begin()
    pids = family(local)
    running.send_signal(how)
    done = local.end(running)
    assert done.code == 130
    assert done.lines == {"worker/0": ["goodbye"], "worker/1": ["goodbye"]}
    assert not [pid for pid in pids if lives(pid)]


def test_a_task_that_ignores_sigterm_is_killed_after_the_grace(local: Local) -> None:
    local.write(JOB, FAMILY.replace("EXTRA", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"))
    running = local.begin()
    pids = family(local)
    running.send_signal(signal.SIGINT)
    assert local.end(running).code == 130
    assert not [pid for pid in pids if lives(pid)]


def test_a_second_ctrl_c_kills_at_once(local: Local) -> None:
    local.write(
        JOB.replace("1s", "1h"),
        FAMILY.replace("EXTRA", "signal.signal(signal.SIGTERM, lambda *_: note('heard'))"),
    )
    running = local.begin()
    pids = family(local)
    running.send_signal(signal.SIGINT)
    assert local.numbers("heard0")
    running.send_signal(signal.SIGINT)
    assert local.end(running).code == 130
    assert not [pid for pid in pids if lives(pid)]


def test_a_killed_tfctl_leaves_no_process(local: Local) -> None:
    local.write(JOB, FAMILY.replace("EXTRA", ""))
    running = local.begin()
    pids = family(local)
    running.kill()
    wait_for(lambda: not [pid for pid in pids if lives(pid)])


def test_a_task_leaves_no_process_when_it_ends_before_others(local: Local) -> None:
    local.write(
        JOB.replace("worker: 2", "worker: 1, ps: {replicas: 1, command: sleep 600}"),
        FAMILY.replace(
            "EXTRA",
            "while not (os.path.exists('child0') and os.path.exists('daemon0')): time.sleep(0.01)\n    sys.exit(0)",
        ),
    )
    done = local.run()
    assert done.code == 0
    assert not [pid for name in NAMES[:3] for pid in local.numbers(name) if lives(pid)]


def test_a_closed_pipe_ends_the_run(local: Local) -> None:
    local.write(JOB, FAMILY.replace("EXTRA", "while True: print('talk', flush=True); time.sleep(0.01)"))
    running = local.begin()
    pids = family(local)
    assert running.stdout is not None
    running.stdout.close()
    assert running.wait(timeout=15) == 101
    assert not [pid for pid in pids if lives(pid)]


def test_without_proc_tasks_are_known_by_their_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS: what `ps -E` prints, words of the command and then its variables."""
    ps = tmp_path / "ps"
    ps.write_text(
        "#!/bin/sh\n"
        "echo '  501 /bin/sleep 600 A=b TFCTL_RUN=0123abcd TFCTL_ROLE=worker TFCTL_INDEX=1'\n"
        "echo '  502 /bin/sleep 600 A=b TFCTL_RUN=0123abcd TFCTL_ROLE=worker TFCTL_INDEX=11'\n"
        "echo '  503 /bin/sleep 600'\n"
    )
    ps.chmod(0o755)
    for name, value in (("RUN", "0123abcd"), ("ROLE", "worker"), ("INDEX", "1")):
        monkeypatch.setenv(f"TFCTL_{name}", value)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert list(supervisor.processes_by_environment()) == [501]


def test_a_program_that_cannot_run_has_the_exit_code_of_a_shell() -> None:
    words = [sys.executable, "-I", "-S", supervisor.__file__, "mixed", "1", "/no/such/program"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)
    assert "No such file" in done.stdout


def test_an_interrupt_gives_a_program_that_a_shell_runs_its_grace_period(local: Local) -> None:
    script = """
        import os, signal, sys, time
        def save(*_):
            time.sleep(0.3)
            print("saved", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        with open("task.new", "w") as file:
            file.write(f"{os.getpid()}\\n")
        os.rename("task.new", "task")
        time.sleep(600)
    """
    command = "command: [sh, -c, 'python train.py; echo over']\n"
    local.write(f"strategy: custom\n{command}roles: {{worker: 1}}\npolicy: {{grace: 20s}}\n", script)
    running = local.begin()
    [pid] = local.numbers("task")
    running.send_signal(signal.SIGINT)
    done = local.end(running)
    assert done.lines == {"worker/0": ["saved"]}
    assert not lives(pid)
