"""A start in which something goes wrong: it is said where, and nothing is left of it on any host, whoever helps."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from jobs import Jobs, wait_for

FOUR = "command: sleep 600\nroles: {worker: 4}\n"

#: The moments of a start at which its client can go, each as the lines that stop there.
PHASES = {
    "connected": "talks.open_node = lambda *_: gone()",
    "hello": "start._place = lambda *_: gone()",
    "plan sent": "after(talks.NodeChannel, 'send', lambda kind, _: kind == 'plan')",
    "code half sent": """
        whole = talks.NodeChannel.send_raw
        def half(channel, data):
            large = len(data) > 100_000
            whole(channel, data[: len(data) // 2] if large else data)
            if large:
                gone()
        talks.NodeChannel.send_raw = half
    """,
    "reserved on some": "after(talks.Talks, '_each', lambda hosts, _: list(hosts) == ['node1'])",
    "reserved": "start._require_shared = lambda *_: gone()",
    "go told to some": "after(talks.NodeChannel, 'send', lambda kind, _: kind == 'go')",
    "started": "talks.Talks.keep = lambda _: gone()",
}
GONE = """
def gone():
    os.kill(os.getpid(), signal.{signal})
    time.sleep(60)

def after(owner, name, fits):
    real = getattr(owner, name)
    def done(self, *words):
        found = real(self, *words)
        if fits(*words):
            gone()
        return found
    setattr(owner, name, done)
"""


@pytest.fixture
def four(jobs: Jobs) -> Path:
    """A job of a task on each host, with code of some size that no host has yet."""
    file = jobs.file("faulty", FOUR)
    (file.parent / "data").write_bytes(os.urandom(2**20))
    return file


def refused(jobs: Jobs, file: Path, code: int, *said: str) -> str:
    """What it says on stderr when it is refused with all of that, and leaves nothing."""
    with jobs.leaving_nothing():
        done = jobs("start", file)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    for text in said:
        assert text in done.stderr
    return done.stderr


@contextmanager
def changed(jobs: Jobs, host: str, do: str, undo: str) -> Iterator[None]:
    """Shell lines, by root, before and after."""
    jobs.root(host, do)
    try:
        yield
    finally:
        jobs.root(host, undo)


def paused(jobs: Jobs, file: Path, phase: str) -> tuple[subprocess.Popen[str], Callable[[], object]]:
    """A start that waits when all hosts have reserved, or started; and what lets it go on."""
    place = {"reserved": "start, '_require_shared'", "started": "talks.Talks, 'keep'"}[phase]
    ready, go_on = jobs.folder / "ready", jobs.folder / "go-on"
    lines = f"""
        def paused(owner, name):
            real = getattr(owner, name)
            def wait(*words):
                open({str(ready)!r}, 'w').close()
                while not os.path.exists({str(go_on)!r}):
                    time.sleep(0.05)
                return real(*words)
            setattr(owner, name, wait)
        paused({place})
    """
    process = jobs.begin_patched(lines, "start", file)
    wait_for(ready.exists, 30)
    return process, go_on.touch


# -- the client goes


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT", "SIGTERM"])
def test_a_client_that_goes_before_keep_leaves_nothing(how: str, phase: str, jobs: Jobs, four: Path) -> None:
    with jobs.leaving_nothing():
        process = jobs.begin_patched(GONE.format(signal=how) + textwrap.dedent(PHASES[phase]), "start", four)
        out, err = process.communicate(timeout=55)
    assert out == ""
    assert "Traceback" not in err
    if how == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130, err
        assert "interrupted" in err
        assert phase == "connected" or "nothing of the job runs" in err


# -- a host refuses


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ("node1 node2 node4", "node3: stack tf0.0 is not installed on node3"),
        ("", "node1: stack tf0.0 is not installed on node1"),
    ],
)
def test_a_stack_that_is_missing(hosts: str, said: str, jobs: Jobs, four: Path) -> None:
    four.write_text(four.read_text().replace("stack: none", "stack: tf0.0"))
    stack = "/opt/tfctl/stacks/tf0.0"
    with ExitStack() as there:
        for host in hosts.split():
            there.enter_context(
                changed(jobs, host, f"install -d {stack}-a/bin; ln -s tf0.0-a {stack}", f"rm -r {stack}*")
            )
        err = refused(jobs, four, 8, said, "tfctl ships no stack tf0.0: did you mean tf2.0?")
    assert all(f"{host}: stack" not in err for host in hosts.split())


@pytest.mark.parametrize("known", ["", "other"])
def test_a_host_key_that_is_not_the_known_one(known: str, jobs: Jobs, four: Path, tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    key = subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True, timeout=20
    )
    assert key.returncode == 0
    address = jobs.lab.hosts()["node3"]["ansible_host"]
    file.write_text(f"{address} {(tmp_path / 'other.pub').read_text()}" if known else "")
    args = f"-o UserKnownHostsFile={file} -o StrictHostKeyChecking=yes"
    said = "has changed" if known else "is not known"
    refused(
        jobs.told("node3", ansible_ssh_common_args=args),
        four,
        4,
        "node3: ",
        said,
        "ssh-keygen -R" if known else "ssh-keyscan",
    )


@pytest.mark.parametrize("rule", ["asked ALL=(ALL) ALL", ""])
def test_a_login_user_whom_sudo_refuses(rule: str, jobs: Jobs, four: Path) -> None:
    make = (
        "useradd --create-home asked; install -d -o asked -m 700 /home/asked/.ssh;"
        "install -o asked -m 600 /home/ops/.ssh/authorized_keys /home/asked/.ssh/authorized_keys;"
        f"echo '{rule}' > /etc/sudoers.d/asked"
    )
    unmake = "rm /etc/sudoers.d/asked; loginctl terminate-user asked; userdel --force --remove asked 2>&1; true"
    with changed(jobs, "node3", make, unmake):
        refused(jobs.told("node3", ansible_user="asked"), four, 8, "node3: sudo does not let", "tfctl provision")


@pytest.mark.parametrize(
    ("place", "size", "said"),
    [
        ("/var/lib/tfctl/code", "512k", "cannot keep the code on node2: No space left on device"),
        ("/var/lib/tfctl/jobs", "512k", "No space left on device"),
        ("/var/lib/tfctl", "100m", "node2 has 104 MB free"),
        ("/srv/tfctl", "4k,nr_inodes=1", "No space left on device: /srv/tfctl/faulty"),
    ],
)
def test_no_space_on_one_of_four_hosts(place: str, size: str, said: str, jobs: Jobs, four: Path) -> None:
    mount = f"mount -t tmpfs -o size={size},mode=1777 tmpfs {place}"
    if place == "/var/lib/tfctl":
        mount += f"; install -d -o tfctl {place}/home; install -d {place}/code {place}/jobs"
    with changed(jobs, "node2", mount, f"umount {place}"):
        refused(jobs, four, 8, "node2: ", said, "make room" if "left" in said else "remove what is not needed")


@pytest.mark.parametrize(
    ("make", "unmake", "said"),
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
def test_a_unit_of_that_name_is_there(make: str, unmake: str, said: str, jobs: Jobs, four: Path) -> None:
    with changed(jobs, "node2", make, unmake):
        refused(jobs, four, 5, "node2: node2 has a unit tfctl-faulty-worker-1.service that is not tfctl's", said)


def test_a_host_without_power(jobs: Jobs, four: Path) -> None:
    with jobs.lab.unplugged("node4"):
        done = jobs("start", four)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert "node4: " in done.stderr
    jobs.untouched()


# -- a host goes


@pytest.mark.parametrize("phase", ["reserved", "started"])
def test_a_host_that_is_cut_off_in_mid_start(phase: str, jobs: Jobs, four: Path) -> None:
    """Seen from within that host too: nothing of it runs there 60 s after the cut, and nothing elsewhere."""
    process, go_on = paused(jobs, four, phase)
    with jobs.lab.unplugged("node4"):
        end = time.monotonic() + 60
        go_on()
        out, err = process.communicate(timeout=100)
        wait_for(lambda: not jobs.lab.inside("node4", "ps -u tfctl -o args="), end - time.monotonic())
    assert (process.returncode, out) == (6, ""), err
    assert "node4: " in err
    assert not any(jobs.traces().values())


@pytest.mark.parametrize("phase", ["reserved", "started"])
def test_a_node_program_that_is_killed_in_mid_start(phase: str, jobs: Jobs, four: Path) -> None:
    with jobs.leaving_nothing():
        process, go_on = paused(jobs, four, phase)
        jobs.root("node3", "pkill -KILL -f '^/usr/bin/python3 .*tfctl-nod[e]'")
        go_on()
        out, err = process.communicate(timeout=60)
    assert out == ""
    assert process.returncode == 6, err
    assert "node3: tfctl-node ended" in err


def test_of_two_jobs_that_want_one_port_one_starts(jobs: Jobs) -> None:
    files = [jobs.file(name, FOUR + "ports: 3000-3000\n") for name in ("one", "other")]
    both = [jobs.begin("start", file) for file in files]
    said = [process.communicate(timeout=60) for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 5], said
    winner, loser = ("one", "other") if codes == [0, 5] else ("other", "one")
    assert said[codes.index(5)][0] == ""
    assert "3000" in said[codes.index(5)][1]
    assert set(jobs.states(winner).values()) == {"running"}
    assert jobs("status", loser).returncode == 7


# -- the output


def test_an_output_that_not_all_hosts_share(jobs: Jobs) -> None:
    """No word about a job in which one task writes; where several do, the host that is apart is named."""
    file = jobs.file("apart", "command: sleep 600\nroles: {ps: 2, worker: 4}\n")
    with changed(jobs, "node3", "mount -t tmpfs -o mode=1777 tmpfs /srv/tfctl", "umount /srv/tfctl"):
        refused(jobs, file, 8, "node3: /srv/tfctl/apart is not the same directory as on node1", "mount one")
        jobs.ok("start", jobs.file("alone", "command: sleep 600\nroles: {ps: 1, worker: 4}\n"))
        jobs.ok("stop", "alone")
        jobs.root("node3", "rmdir /srv/tfctl/alone")
    jobs.ok("start", file)
    assert jobs.root("node2", "ls -A /srv/tfctl/apart") == ""


def test_an_output_without_room_for_the_mark(jobs: Jobs) -> None:
    """Its directory is there, and no file can be made in it: that is not the same as two directories."""
    small = "mount -t tmpfs -o nr_inodes=2,mode=1777 tmpfs /srv/tfctl; install -d -o tfctl /srv/tfctl/tight"
    file = jobs.file("tight", "command: sleep 600\nroles: {ps: 2, worker: 4}\n")
    with changed(jobs, "node1", small, "umount /srv/tfctl"):
        refused(jobs, file, 8, "node1: no file can be made in /srv/tfctl/tight", "whether it is full")


def test_an_output_that_is_no_longer_shared_when_the_job_begins_again(jobs: Jobs) -> None:
    """As after a file system was unmounted: what was seen at the start is seen again."""
    jobs.ok("start", jobs.file("later", "command: sleep 600\nroles: {ps: 2, worker: 4}\n"))
    with changed(jobs, "node3", "mount -t tmpfs -o mode=1777 tmpfs /srv/tfctl", "umount /srv/tfctl"):
        done = jobs("restart", "later")
    assert (done.returncode, done.stdout) == (8, "")
    assert "node3: /srv/tfctl/later is not the same directory as on node1" in done.stderr
    assert "later was stopped, but its next attempt could not be started" in done.stderr
    jobs.untouched()


@pytest.mark.parametrize("word", ["write", "find"])
def test_a_client_that_goes_while_hosts_look_for_its_mark(word: str, jobs: Jobs) -> None:
    file = jobs.file("marked", "command: sleep 600\nroles: {ps: 2, worker: 4}\n")
    patch = f"after(talks.NodeChannel, 'send', lambda kind, value: kind == 'share' and {word!r} in value)"
    with jobs.leaving_nothing():
        process = jobs.begin_patched(GONE.format(signal="SIGKILL") + patch, "start", file)
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL


# -- stop


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_stop_that_is_interrupted_is_brought_to_its_end(how: signal.Signals, jobs: Jobs) -> None:
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
    jobs.untouched()
    jobs.ok("stop", "slow")
    jobs.ok("stop", "slow")
    assert set(jobs.states("slow").values()) == {"stopped"}


def test_a_stop_finds_a_task_whose_unit_file_was_removed(jobs: Jobs) -> None:
    """systemd then knows a unit that runs, and has no file."""
    jobs.ok("start", jobs.file("fileless", FOUR))
    jobs.root("node2", "rm /run/systemd/system/tfctl-fileless-worker-1.service; systemctl daemon-reload")
    assert "worker/1" in jobs("stop", "fileless").stderr
    assert not any(jobs.traces().values())


def test_a_stop_on_a_host_without_room_for_its_mark(jobs: Jobs) -> None:
    """The task ends there all the same, and what is not noted is said."""
    small = "mount -t tmpfs -o size=200m,nr_inodes=60,mode=755 tmpfs /var/lib/tfctl/jobs"
    with changed(jobs, "node2", small, "umount /var/lib/tfctl/jobs"):
        jobs.ok("start", jobs.file("full", FOUR))
        jobs.root("node2", "cd /var/lib/tfctl/jobs; n=0; while touch fill$n 2>/dev/null; do n=$((n + 1)); done")
        done = jobs("stop", "full")
        assert done.returncode == 1, done.stderr
        assert "node2: that full was stopped cannot be noted on node2: No space left on device" in done.stderr
        jobs.untouched()


@pytest.mark.parametrize("end", ["stop", "exit"])
def test_a_daemon_that_a_task_left_dies_with_it(end: str, jobs: Jobs) -> None:
    """It has its own session, no parent, deaf ears and a port."""
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
    assert not any(line for lines in jobs.traces().values() for line in lines if "tfctl-" not in line)


# -- again and again


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_starts_and_stops_leave_the_hosts_as_they_were(jobs: Jobs) -> None:
    file = jobs.file("often", "command: sleep 600\nroles: {ps: 1, worker: 4}\n")
    jobs.ok("start", file)
    jobs.ok("stop", file)  # its directories, the records of its attempts and its output are meant to stay
    with jobs.leaving_nothing(but="/tfctl/jobs/often/[0-9]"):
        for _ in range(50):
            jobs.ok("start", file)
            jobs.ok("stop", file)
