"""`tfctl exec`, `pull`, `forward` and `tensorboard` with the real systemd and the real TensorBoard."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.lab.jobs import Jobs, wait_for

STAY = "command: [sh, -c, 'exec sleep 600']\nenv: {GREETING: hello}\nroles: {worker: 2}\n"


@pytest.fixture
def job(jobs: Jobs) -> Jobs:
    jobs.ok("start", jobs.file("busy", STAY))
    return jobs


def run(jobs: Jobs, *words: object) -> subprocess.CompletedProcess[str]:
    """Run tfctl with the options before the dashes, behind which a command for the hosts begins."""
    end = words.index("--")
    command = [*jobs.command(*words[:end]), *map(str, words[end:])]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=jobs.folder)


def sh(script: str) -> tuple[str, ...]:
    return "--", "sh", "-c", script


def test_a_command_is_in_the_sandbox_of_the_tasks(job: Jobs) -> None:
    script = """
        id -un; id -gn; echo "$GREETING $TFCTL_ROLE"; pwd
        grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/self/status
        cut -d: -f3 /proc/self/cgroup
        touch /etc/mine 2>/dev/null || echo read-only; ls /home /root 2>&1 | head -c 200 >&2
        touch "$TFCTL_OUTPUT/mine" && rm "$TFCTL_OUTPUT/mine" && echo writable
        echo reopened >/dev/stderr
        exit 7
    """
    done = run(job, "exec", "busy", "worker", 0, *sh(script))
    assert done.returncode == 7, done
    lines = done.stdout.splitlines()
    assert lines[:3] == ["tfctl", "tfctl", "hello worker"]
    assert re.fullmatch(r"/var/lib/tfctl/jobs/busy/\d+/code", lines[3])
    known = dict(line.split() for line in lines[4:8])
    assert (known["NoNewPrivs:"], known["Seccomp:"]) == ("1", "2")
    assert int(known["CapEff:"], 16) == int(known["CapBnd:"], 16) == 0
    assert "tfctl-busy.slice/tfctl-EXEC-busy-" in done.stdout
    assert lines[-2:] == ["read-only", "writable"]
    assert "reopened" in done.stderr


@pytest.mark.parametrize("word", ["$HOME ${HOME} $$", "100% %h", "a\\b", 'say "hi"', "line\nfeed", ""])
def test_words_of_a_command_arrive_unchanged(word: str, job: Jobs) -> None:
    assert run(job, "exec", "busy", "worker", 0, "--", "printf", "%s", word).stdout == word


def test_ctrl_c_and_stop_end_a_command_on_its_hosts(job: Jobs) -> None:
    command = [*job.command("exec", "busy", "worker"), *sh("echo up; sleep 731 & exec sleep 731")]
    for end in ("ctrl-c", "stop"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=job.folder)
        assert process.stdout
        assert {process.stdout.readline() for _ in range(2)} == {"worker/0 │ up\n", "worker/1 │ up\n"}
        if end == "ctrl-c":
            process.send_signal(signal.SIGINT)
        else:
            job.ok("stop", "busy")
        process.communicate(timeout=30)
        assert process.returncode != 0
        wait_for(lambda: _is_clean(job), 20)
    job.assert_nothing_left()


def test_exec_has_the_environment_of_a_task_that_has_failed(jobs: Jobs) -> None:
    text = "command: [sh, -c, 'exit 3']\nenv: {GREETING: hello}\nroles: {worker: 1}\n"
    jobs("start", jobs.file("failed", text), "--wait")
    assert run(jobs, "exec", "failed", "worker", *sh("echo $GREETING")).stdout == "hello\n"


def test_pull_copies_what_only_the_jobs_user_may_read(jobs: Jobs, tmp_path: Path) -> None:
    script = 'umask 077; mkdir -p "$TFCTL_OUTPUT/in"; head -c 20000000 /dev/zero >"$TFCTL_OUTPUT/in/zeros"; echo done'
    file = jobs.file("written", f"command: [sh, -c, {shlex.quote(script)}]\nroles: {{worker: 2}}\n")
    jobs.ok("start", file, "--wait")
    jobs.root("node1", "ln -s /etc/shadow /srv/tfctl/written/shadow; touch /srv/tfctl/written/of-root; "
                       "chmod 600 /srv/tfctl/written/of-root")  # fmt: skip
    done = jobs("pull", "written", tmp_path / "got")
    assert done.returncode == 1
    assert "shadow is a link to /etc/shadow" in done.stderr
    assert "of-root: Permission denied" in done.stderr
    zeros = list((tmp_path / "got/output").rglob("zeros"))
    assert zeros and all(path.stat().st_size == 20_000_000 for path in zeros)
    assert (tmp_path / "got/attempt-1/worker-0.log").read_text() == "done\n"


def test_forward_reaches_a_server_of_a_task(jobs: Jobs) -> None:
    serve = "command: [python3, -m, http.server, --bind, 127.0.0.1, '18765']\nroles: {worker: 1}\n"
    jobs.ok("start", jobs.file("server", serve))
    process = jobs.begin("forward", "server", "worker", "0:18765")
    assert process.stdout
    address = process.stdout.readline().strip()
    wait_for(lambda: _status(f"http://{address}/") == 200, 20)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


def test_tensorboard_shows_a_job_that_was_stopped(jobs: Jobs) -> None:
    jobs.ok("start", jobs.file("curves", "stack: tf2.15\n" + STAY))
    jobs.ok("stop", "curves")
    process = jobs.begin("tensorboard", "curves")
    assert process.stdout
    began = time.monotonic()
    url = process.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:"), process.communicate(timeout=20)
    assert time.monotonic() - began < 60
    assert _status(url) == 200
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    jobs.assert_nothing_left()


def _is_clean(jobs: Jobs) -> bool:
    """Return whether no command is left on any host."""
    look = "pgrep -x sleep -a | grep 731; ls -d /run/tfctl/exec-* /run/systemd/system/tfctl-EXEC-* 2>/dev/null; true"
    return not any(jobs.everywhere(look).values())


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as page:
            return int(page.status)
    except OSError:
        return 0
