"""Starts that fail: tfctl names the host and the cause, and nothing is left on any host."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.lab.jobs import Jobs, wait_for
from tests.lab.proxy import proxied

FOUR = "command: sleep 600\nroles: {worker: 4}\n"

ALL = ("node1", "node2", "node3", "node4")

#: The moments of a start at which its client can die: the side and the kind of the message that gets lost, and where.
#: The host that sorts first is asked to reserve before the others.
PHASES: Mapping[str, tuple[Literal["client", "node"], str, Sequence[str]]] = {
    "connected": ("client", "start", ALL),
    "hello": ("client", "plan", ALL[:1]),
    "plan sent": ("client", "code", ALL[:1]),
    "code half sent": ("client", "code-2", ALL[:1]),
    "reserved on some": ("client", "plan", ALL[1:]),
    "reserved": ("client", "go", ALL),
    "go sent to some": ("client", "go", ALL[1:]),
    "started": ("node", "started", ALL),
}


@pytest.fixture
def four(jobs: Jobs) -> Path:
    """A job with one task per host and 1 MiB of code that no host has yet."""
    file = jobs.file("faulty", FOUR)
    (file.parent / "data").write_bytes(os.urandom(2**20))
    return file


def refused(jobs: Jobs, file: Path, code: int, *messages: str) -> str:
    """Assert that a start is refused with these texts and leaves nothing; return stderr."""
    with jobs.leaving_nothing():
        done = jobs("start", file)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    for text in messages:
        assert text in done.stderr
    return done.stderr


@contextmanager
def changed(jobs: Jobs, host: str, do: str, undo: str) -> Iterator[None]:
    """Run a shell command as root before the block, and another one after it."""
    jobs.root(host, do)
    try:
        yield
    finally:
        jobs.root(host, undo)


@contextmanager
def paused(jobs: Jobs, file: Path, phase: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[], None]]]:
    """Begin a start that pauses when all hosts have reserved or started; yield it and a function that resumes it."""
    held = proxied(jobs, "hold", "client", "go", ALL)
    if phase == "started":
        held = proxied(jobs, "hold", "node", "started", ALL[1:2])
    with held as proxy:
        process = jobs.begin("start", file)
        wait_for(proxy.reached, 60)
        if phase == "started":
            wait_for(lambda: all(jobs.everywhere("pgrep -u tfctl sleep; true").values()), 30)
        yield process, proxy.release


# -- the client dies


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_start_leaves_nothing_when_its_client_dies_before_keep(
    how: signal.Signals, phase: str, jobs: Jobs, four: Path
) -> None:
    with proxied(jobs, "stall", *PHASES[phase]) as proxy, jobs.leaving_nothing():
        process = jobs.begin("start", four)
        wait_for(proxy.reached, 60)
        process.send_signal(how)
        out, err = process.communicate(timeout=55)
    assert out == ""
    assert "Traceback" not in err
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130, err
        assert "interrupted" in err
        assert phase == "connected" or "no part of the job is running" in err


# -- a host refuses


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("node1 node2 node4", "node3: stack tf0.0 is not installed on node3"),
        ("", "node1: stack tf0.0 is not installed on node1"),
    ],
)
def test_start_is_refused_when_a_host_lacks_the_stack(hosts: str, message: str, jobs: Jobs, four: Path) -> None:
    four.write_text(four.read_text().replace("stack: none", "stack: tf0.0"))
    stack = "/opt/tfctl/stacks/tf0.0"
    with ExitStack() as there:
        for host in hosts.split():
            there.enter_context(
                changed(jobs, host, f"install -d {stack}-a/bin; ln -s tf0.0-a {stack}", f"rm -r {stack}*")
            )
        err = refused(jobs, four, 8, message, "tfctl ships no stack tf0.0: did you mean tf2.0?")
    assert all(f"{host}: stack" not in err for host in hosts.split())


@pytest.mark.parametrize("known", ["", "other"])
def test_start_is_refused_when_a_host_key_is_unknown_or_changed(
    known: str, jobs: Jobs, four: Path, tmp_path: Path
) -> None:
    file = tmp_path / "known_hosts"
    key = subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True, timeout=20
    )
    assert key.returncode == 0
    address = jobs.lab.hosts()["node3"]["ansible_host"]
    file.write_text(f"{address} {(tmp_path / 'other.pub').read_text()}" if known else "")
    args = f"-o UserKnownHostsFile={file} -o StrictHostKeyChecking=yes"
    message = "has changed" if known else "is not known"
    refused(
        jobs.with_host_variables("node3", ansible_ssh_common_args=args),
        four,
        4,
        "node3: ",
        message,
        "ssh-keygen -R" if known else "ssh-keyscan",
    )


@pytest.mark.parametrize("rule", ["asked ALL=(ALL) ALL", ""])
def test_start_is_refused_when_sudo_refuses_the_login_user(rule: str, jobs: Jobs, four: Path) -> None:
    make = (
        "useradd --create-home asked; install -d -o asked -m 700 /home/asked/.ssh;"
        "install -o asked -m 600 /home/ops/.ssh/authorized_keys /home/asked/.ssh/authorized_keys;"
        f"echo '{rule}' > /etc/sudoers.d/asked"
    )
    unmake = "rm /etc/sudoers.d/asked; loginctl terminate-user asked; userdel --force --remove asked 2>&1; true"
    with changed(jobs, "node3", make, unmake):
        refused(
            jobs.with_host_variables("node3", ansible_user="asked"),
            four,
            8,
            "node3: sudo does not permit",
            "tfctl provision",
        )


@pytest.mark.parametrize(
    ("place", "size", "message"),
    [
        ("/var/lib/tfctl/code", "512k", "/var/lib/tfctl/code on node2 has 0 MB free; 200 MB are needed"),
        ("/var/lib/tfctl/code", "400m,nr_inodes=2", "cannot keep the code on node2: No space left on device"),
        ("/var/lib/tfctl/jobs", "400m,nr_inodes=2", "No space left on device"),
        ("/var/lib/tfctl", "100m", "node2 has 104 MB free"),
        ("/srv/tfctl", "4k,nr_inodes=1", "No space left on device: /srv/tfctl/faulty"),
    ],
)
def test_start_is_refused_when_one_host_has_no_space(
    place: str, size: str, message: str, jobs: Jobs, four: Path
) -> None:
    mount = f"mount -t tmpfs -o size={size},mode=1777 tmpfs {place}"
    if place == "/var/lib/tfctl":
        mount += f"; install -d -o tfctl {place}/home; install -d {place}/code {place}/jobs"
    with changed(jobs, "node2", mount, f"umount {place}"):
        refused(jobs, four, 8, "node2: ", message, "tfctl prune")


@pytest.mark.parametrize(
    ("make", "unmake", "message"),
    [
        (
            "echo '[Service]' > /etc/systemd/system/tfctl-faulty-worker-1.service; systemctl daemon-reload",
            "rm /etc/systemd/system/tfctl-faulty-worker-1.service; systemctl daemon-reload",
            "/etc/systemd/system/tfctl-faulty-worker-1.service",
        ),
        (
            "systemd-run --quiet --unit tfctl-faulty-worker-1 -p User=root sleep 700",
            "pgrep -f '^/usr/bin/sleep 700'; systemctl stop tfctl-faulty-worker-1",
            "/run/systemd/transient/tfctl-faulty-worker-1.service",
        ),
    ],
    ids=["file", "transient"],
)
def test_start_is_refused_when_a_foreign_unit_has_the_same_name(
    make: str, unmake: str, message: str, jobs: Jobs, four: Path
) -> None:
    with changed(jobs, "node2", make, unmake):
        refused(jobs, four, 5, "node2: node2 has a unit tfctl-faulty-worker-1.service that is not tfctl's", message)


def test_start_is_refused_when_a_host_is_unreachable(jobs: Jobs, four: Path) -> None:
    with jobs.lab.without_network("node4"):
        done = jobs("start", four)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert "node4: " in done.stderr
    jobs.assert_nothing_left()


# -- a host fails


@pytest.mark.parametrize("phase", ["reserved", "started"])
def test_start_is_undone_everywhere_when_a_host_loses_its_network(phase: str, jobs: Jobs, four: Path) -> None:
    """Nothing may run on the disconnected host 60 s later, as seen on that host itself, and nothing on the others.

    If that host may have received `keep`, the guards of the others wait for it, to stop it. The remedy ends them.
    """
    with paused(jobs, four, phase) as (process, resume):
        with jobs.lab.without_network("node4"):
            end = time.monotonic() + 60
            resume()
            out, err = process.communicate(timeout=100)
            wait_for(lambda: not jobs.lab.inside("node4", "ps -u tfctl -o args="), end - time.monotonic())
        assert (process.returncode, out) == (6, ""), err
        assert "node4: " in err
        assert not any(jobs.everywhere("ps -u tfctl -o args=; true").values())
        if phase == "started":
            assert "run `tfctl stop faulty`" in err
            jobs.ok("stop", "faulty")
        assert not any(jobs.traces().values())


@pytest.mark.parametrize("phase", ["reserved", "started"])
def test_start_is_undone_when_tfctl_node_is_killed_on_a_host(phase: str, jobs: Jobs, four: Path) -> None:
    with jobs.leaving_nothing(), paused(jobs, four, phase) as (process, resume):
        jobs.root("node3", "pkill -KILL -f '^/usr/bin/python3 -IS [^ ]*/tfctl-node$'")
        resume()
        out, err = process.communicate(timeout=60)
    assert out == ""
    assert process.returncode == 6, err
    assert "node3: tfctl-node ended" in err


def test_start_succeeds_for_one_of_two_jobs_that_want_the_same_port(jobs: Jobs) -> None:
    files = [jobs.file(name, FOUR + "ports: 3000-3000\n") for name in ("one", "other")]
    both = [jobs.begin("start", file) for file in files]
    outputs = [process.communicate(timeout=60) for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 5], outputs
    winner, loser = ("one", "other") if codes == [0, 5] else ("other", "one")
    assert outputs[codes.index(5)][0] == ""
    assert "3000" in outputs[codes.index(5)][1]
    assert set(jobs.states(winner).values()) == {"running"}
    assert jobs("status", loser).returncode == 7


# -- the output directory


def test_start_names_the_host_whose_output_directory_is_not_shared(jobs: Jobs) -> None:
    """A job in which only one task writes may start; with several writers the deviating host is named."""
    file = jobs.file("apart", "command: sleep 600\nroles: {ps: 2, worker: 4}\n")
    with changed(jobs, "node3", "mount -t tmpfs -o mode=1777 tmpfs /srv/tfctl", "umount /srv/tfctl"):
        refused(jobs, file, 8, "node3: /srv/tfctl/apart is not the same directory as on node1", "mount one")
        jobs.ok("start", jobs.file("alone", "command: sleep 600\nroles: {ps: 1, worker: 4}\n"))
        jobs.ok("stop", "alone")
        jobs.root("node3", "rmdir /srv/tfctl/alone")
        text = "output: local\ncommand: [sh, -c, 'exec touch {output}/{role}-{index}']\nroles: {ps: 2, worker: 4}\n"
        jobs.ok("start", jobs.file("local", text), "--wait")
        assert jobs.root("node3", "ls /srv/tfctl/local") == "worker-2"
        jobs.root("node3", "rm -r /srv/tfctl/local")
    jobs.ok("start", file)
    assert jobs.root("node2", "ls -A /srv/tfctl/apart") == ""


def test_start_is_refused_when_the_output_directory_is_full(jobs: Jobs) -> None:
    """The directory exists, but no file can be created in it. The error must not claim that hosts do not share it."""
    small = "mount -t tmpfs -o nr_inodes=2,mode=1777 tmpfs /srv/tfctl; install -d -o tfctl /srv/tfctl/tight"
    file = jobs.file("tight", "command: sleep 600\nroles: {ps: 2, worker: 4}\n")
    with changed(jobs, "node1", small, "umount /srv/tfctl"):
        refused(jobs, file, 8, "node1: cannot create a file in /srv/tfctl/tight", "whether it is full")


def test_restart_is_refused_when_the_output_directory_is_no_longer_shared(jobs: Jobs) -> None:
    """The check at the start is repeated, for example because a file system was unmounted since."""
    jobs.ok("start", jobs.file("later", "command: sleep 600\nroles: {ps: 2, worker: 4}\n"))
    with changed(jobs, "node3", "mount -t tmpfs -o mode=1777 tmpfs /srv/tfctl", "umount /srv/tfctl"):
        done = jobs("restart", "later")
    assert (done.returncode, done.stdout) == (8, "")
    assert "node3: /srv/tfctl/later is not the same directory as on node1" in done.stderr
    assert "later was stopped, but its next attempt could not be started" in done.stderr
    jobs.assert_nothing_left()


@pytest.mark.parametrize("hosts", [ALL[:1], ALL[1:]], ids=["written", "found"])
def test_start_leaves_nothing_when_its_client_dies_during_the_output_check(hosts: Sequence[str], jobs: Jobs) -> None:
    """The first host writes a mark; then all look for it. An answer is lost."""
    file = jobs.file("marked", "command: sleep 600\nroles: {ps: 2, worker: 4}\n")
    with proxied(jobs, "stall", "node", "share", hosts) as proxy, jobs.leaving_nothing():
        process = jobs.begin("start", file)
        wait_for(proxy.reached, 60)
        process.kill()
        process.communicate(timeout=30)


# -- stop


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stop_is_completed_on_the_hosts_when_the_client_is_interrupted(how: signal.Signals, jobs: Jobs) -> None:
    slow = "command: python3 slow.py\nroles: {worker: 4}\npolicy: {grace: 20s}\n"
    file = jobs.file("slow", slow)
    (file.parent / "slow.py").write_text(
        "import signal, time\nsignal.signal(15, lambda *_: (time.sleep(3), exit(0)))\ntime.sleep(600)\n"
    )
    jobs.ok("start", file)
    process = jobs.begin("stop", "slow")
    wait_for(lambda: "deactivating" in jobs.root("node1", "systemctl list-units --all --plain 'tfctl-slow-*'"), 20)
    process.send_signal(how)
    process.communicate(timeout=20)
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    jobs.assert_nothing_left()
    jobs.ok("stop", "slow")
    jobs.ok("stop", "slow")
    assert set(jobs.states("slow").values()) == {"stopped"}


def test_stop_ends_a_task_whose_unit_file_was_removed(jobs: Jobs) -> None:
    """systemd then has a running unit without a file."""
    jobs.ok("start", jobs.file("fileless", FOUR))
    jobs.root("node2", "rm /run/systemd/system/tfctl-fileless-worker-1.service; systemctl daemon-reload")
    assert "worker/1" in jobs("stop", "fileless").stderr
    assert not any(jobs.traces().values())


def test_stop_ends_tasks_and_reports_a_host_without_space_for_its_mark(jobs: Jobs) -> None:
    """The task on that host ends nevertheless, and tfctl reports that the stop was not recorded."""
    small = "mount -t tmpfs -o size=200m,nr_inodes=60,mode=755 tmpfs /var/lib/tfctl/jobs"
    with changed(jobs, "node2", small, "umount /var/lib/tfctl/jobs"):
        jobs.ok("start", jobs.file("full", FOUR))
        jobs.root("node2", "cd /var/lib/tfctl/jobs; n=0; while touch fill$n 2>/dev/null; do n=$((n + 1)); done")
        done = jobs("stop", "full")
        assert done.returncode == 1, done.stderr
        assert "node2: cannot record on node2 that full was stopped: No space left on device" in done.stderr
        jobs.assert_nothing_left()


@pytest.mark.parametrize("end", ["stop", "exit"])
def test_daemon_started_by_a_task_ends_with_the_task(end: str, jobs: Jobs) -> None:
    """The daemon has its own session and no parent, ignores SIGTERM and holds a port."""
    file = jobs.file("daemons", f"command: python3 daemon.py {end}\nroles: {{worker: 2}}\npolicy: {{grace: 2s}}\n")
    (file.parent / "daemon.py").write_text(
        "import os, signal, socket, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    signal.signal(15, signal.SIG_IGN)\n"
        "    server = socket.create_server(('', 3050))\n"
        "    print('listens', flush=True)\n"
        "    time.sleep(600)\n"
        "os.wait()\n"
        "time.sleep(600 if sys.argv[1] == 'stop' else 3)\n"
    )
    jobs.ok("start", file)
    wait_for(lambda: jobs.ok("logs", "--job", "daemons").count("listens") == 2, 20)
    assert ":3050" in jobs.root("node1", "ss -Hltn")
    jobs.ok("stop" if end == "stop" else "wait", "daemons")
    wait_for(lambda: not any(line for lines in jobs.traces().values() for line in lines if "tfctl-" not in line), 10)


# -- many times


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_starts_and_stops_leave_hosts_unchanged(jobs: Jobs) -> None:
    file = jobs.file("often", "command: sleep 600\nroles: {ps: 1, worker: 4}\n")
    jobs.ok("start", file)
    jobs.ok("stop", file)  # creates directories, records and output, which stay
    with jobs.leaving_nothing(but="/tfctl/jobs/often/[0-9]"):
        for _ in range(50):
            jobs.ok("start", file)
            jobs.ok("stop", file)
