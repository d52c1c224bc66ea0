"""A session of `start`: all or nothing, whichever side dies, and whenever."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_tree import (
    ACCOUNT,
    RUN,
    STAY,
    Tree,
    free_port,
    make_plan,
    make_task,
    refused,
    reserve,
    sh,
    tarball,
    wait_until,
)

from tfctl.node import names
from tfctl.node.asuser import as_user
from tfctl.node.disks import size_mib
from tfctl.node.reservations import Reservation, lock, take, undo_preparation
from tfctl.node.session import NodeSession, RequestRefused
from tfctl.node.system import System

CODE = tarball({"train.py": "print('hi')\n", "bin/run.sh": "#!/bin/sh\necho ran\n"})


def test_a_job_runs_from_hello_to_its_end(tree: Tree) -> None:
    plan = make_plan(make_task(command=["bin/run.sh"], env='SECRET="a b"\n'), code=CODE)
    with tree.session("start", job="digits", code=plan["code"], ports=[2222, 2223], resolve=["localhost"]) as session:
        hello = session.expect("hello")
        assert hello["highest"] == 0
        assert hello["code"] is False
        assert hello["names"] == {"localhost": None}
        reserve(session, plan, CODE)
        assert tree.states()["worker/0"]["state"] == "pending"
        session.ask("go", "started")
        session.ask("keep", "kept")
        assert session.process.wait(10) == 0
    done = tree.wait_for("worker/0", "succeeded")
    assert (done["exit_code"], done["signal"], done["restarts"]) == (0, None, 0)
    assert done["started"] <= done["finished"] <= time.time()
    attempt = tree / "var/lib/tfctl/jobs/digits/1"
    assert (attempt / "code/train.py").read_text() == "print('hi')\n"
    assert (tree / "run/tfctl/env/tfctl-digits-worker-0.env").stat().st_mode & 0o777 == 0o600
    assert (tree / "srv/tfctl/digits").stat().st_mode & 0o7777 == 0o2770
    assert [call for call in tree.calls() if call.startswith("start")] == ["start tfctl-digits-worker-0.service"]


def test_start_names_the_peers_that_it_cannot_reach_when_it_has_reserved(tree: Tree) -> None:
    (tree / "cut").write_text("10.9.0.3\n")
    plan = make_plan(make_task(command=STAY))
    (task,) = plan["record"]["tasks"]
    for number in (2, 3):
        more = {"index": number, "host": f"node{number}", "address": f"10.9.0.{number}"}
        plan["record"]["tasks"].append({**task, **more, "unit": names.unit("digits", "worker", number)})
    peers = [{key: one[key] for key in ("host", "address", "port")} for one in plan["record"]["tasks"][1:]]
    with tree.start() as session:
        session.tell("plan", {**plan, "reach": peers})
        failure = f"cannot reach 10.9.0.3:{task['port']}: No route to host"
        assert session.expect("reserved") == {"unreached": [{"host": "node3", "failure": failure, "named": False}]}
        assert tree.states()["worker/0"]["state"] == "pending"
        session.ask("go", "started")


def test_start_connects_only_to_peers_in_its_record(tree: Tree) -> None:
    plan = {**make_plan(make_task(command=STAY)), "reach": [{"host": "node9", "address": "10.9.0.9", "port": 25}]}
    with tree.start() as session:
        assert "the plan names a peer that its record lacks" in refused(session, plan)["message"]


@pytest.mark.parametrize("second", [False, True], ids=["first attempt", "second attempt"])
def test_a_task_is_not_lost_when_its_start_is_faster_than_a_look_at_it(tree: Tree, second: bool) -> None:
    """The look gets its answer from systemd before the units are started, and goes on once the start is complete."""
    plan = make_plan(make_task(command=STAY))
    if second:
        tree.run(make_plan(make_task(command=sh("exit 3"))))
        tree.wait_for("worker/0", "failed")
        plan = make_plan(make_task(command=STAY, attempt=2, run="89abcdef"), attempt=2, run="89abcdef")
    with tree.start() as start:
        reserve(start, plan)
        (tree / "manager/hold-show").touch()
        with tree.session("show", job="digits", attempt=None, follow=False) as look:
            wait_until((tree / "manager/held-show").exists)
            start.ask("go", "started")
            start.ask("keep", "kept")
            (tree / "manager/held-show").unlink()
            [shown] = look.expect("show")["jobs"]
    assert [task["state"] for task in shown["tasks"]] == ["pending"]
    tree.wait_for("worker/0", "running")


@contextlib.contextmanager
def kept_from_readers(path: Path) -> Iterator[None]:
    """Keep everyone who opens the file waiting, for 45 s at most (fcntl(2), leases)."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with path.open("rb") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            yield
    finally:
        signal.signal(signal.SIGIO, before)


def test_an_attempt_is_shown_while_its_code_is_copied(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=["bin/run.sh"]), code=CODE), CODE)
    tree.wait_for("worker/0", "succeeded")
    plan = make_plan(make_task(attempt=2, run="89abcdef"), attempt=2, run="89abcdef", code=CODE)
    with tree.start(code=CODE) as session, session.beating():
        with kept_from_readers(tree / names.stored_code(plan["code"]) / "train.py"):
            session.tell("plan", plan)
            wait_until((tree / names.code_dir("digits", 2)).exists)
            [shown] = tree.ask("show", job="digits", attempt=None, follow=False)["jobs"]
        session.expect("reserved")
    assert (shown["attempt"], shown["kept"], shown["tasks"][0]["state"]) == (2, False, "pending")


def copies(tree: Tree) -> list[Path]:
    """Return the processes that copy the code of jobs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if (words := path.read_text("utf-8", "replace").split("\0"))[:2] == ["cp", "-a"]:
                found += [path] if str(tree.path) in words[-2] else []
    return found


def test_the_copy_of_the_code_ends_with_the_start(tree: Tree) -> None:
    """Otherwise it would go on in the directory that the start removes."""
    tree.run(make_plan(make_task(command=["bin/run.sh"]), code=CODE), CODE)
    tree.wait_for("worker/0", "succeeded")
    plan = make_plan(make_task(attempt=2, run="89abcdef"), attempt=2, run="89abcdef", code=CODE)
    with kept_from_readers(tree / names.stored_code(plan["code"]) / "train.py"), tree.start(code=CODE) as session:
        session.tell("plan", plan)
        wait_until(lambda: copies(tree) != [])
        session.process.terminate()
        assert session.process.wait(20) == 1
        assert copies(tree) == []
    assert not (tree / names.attempt_dir("digits", 2)).exists()


def test_a_start_that_a_power_loss_has_cut_off_does_not_hide_the_attempt_before(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("exit 0"))))
    tree.wait_for("worker/0", "succeeded")
    (tree / names.attempt_dir("digits", 2)).mkdir()
    (tree / names.attempt_dir("digits", 3)).mkdir()
    (tree / names.record_file("digits", 3)).touch()
    assert tree.states()["worker/0"]["state"] == "succeeded"
    assert [one["attempt"] for one in tree.ask("show", jobs=["digits"], follow=False)["jobs"]] == [1]
    with tree.session("start", job="digits", code=None, ports=[2222, 2224], resolve=[]) as session:
        assert session.expect("hello")["highest"] == 3


def open_files() -> list[list[int]]:
    """Return device and inode of what this process has open besides the standard streams."""
    found = []
    for descriptor in range(3, 1024):
        with contextlib.suppress(OSError):
            found.append([os.fstat(descriptor).st_dev, os.fstat(descriptor).st_ino])
    return found


def test_a_child_that_hangs_holds_no_lock(tree: Tree) -> None:
    """On a hung network file system, not even SIGKILL ends it."""
    system = System(prefix=str(tree.path), account=ACCOUNT)
    with lock(system):
        locked = (tree / "run/tfctl/lock").stat()
        assert [locked.st_dev, locked.st_ino] in open_files()
        assert [locked.st_dev, locked.st_ino] not in as_user(system, open_files)


@pytest.mark.parametrize("package", ["tfctl-horovod.pth", "horovod"])
def test_hello_says_whether_each_stack_has_horovod(tree: Tree, package: str) -> None:
    packages = tree / "opt/tfctl/stacks/tf2.15-ab/lib/python3.11/site-packages"
    (packages / "tensorflow").mkdir(parents=True)
    (tree / "opt/tfctl/stacks/ours-cd").mkdir()
    (tree / "opt/tfctl/stacks/ours").symlink_to("ours-cd")
    found = []
    for _ in range(2):
        with tree.session("start", job="digits", code=None, ports=[2222, 2222], resolve=[]) as session:
            found.append(session.expect("hello")["horovod"])
        (packages / package).touch()
    assert found == [{"ours": False, "tf2.15": False}, {"ours": False, "tf2.15": True}]


@pytest.mark.parametrize("phase", ["hello", "reserved", "started"])
@pytest.mark.parametrize("way", ["eof", "silence", "SIGTERM"])
def test_start_leaves_nothing_without_keep(tree: Tree, phase: str, way: str) -> None:
    before = tree.files()
    with tree.session(
        "start", job="digits", code=make_plan(code=CODE)["code"], ports=[2222, 2222], resolve=[],
        silence=2 if way == "silence" else 30,
    ) as session:  # fmt: skip
        with session.beating():
            session.expect("hello")
            if phase != "hello":
                stubborn = make_task(command=sh("trap '' TERM; while :; do sleep 1; done"))
                reserve(session, make_plan(stubborn, code=CODE), CODE)
            if phase == "started":
                session.ask("go", "started")
                assert tree.alive() == ["tfctl-digits-worker-0.service"]
        if way == "SIGTERM":
            session.process.terminate()
        if way != "eof":
            assert session.process.wait(20) == 1
        else:
            assert session.hang_up() == 1
    assert tree.alive() == []
    assert [name for name in tree.files() if name != "run/tfctl/lock"] == before
    assert not (tree / "var/lib/tfctl/jobs/digits").exists()
    assert not (tree / "srv/tfctl/digits").exists()


def test_start_is_undone_when_its_client_dies_while_units_start(tree: Tree) -> None:
    (tree / "manager").mkdir()
    (tree / "manager/hold-start").touch()
    with tree.start() as session:
        reserve(session, make_plan())
        session.tell("go")
        wait_until(lambda: tree.alive() != [])
        assert session.hang_up() == 1
    assert tree.alive() == []
    assert not (tree / "var/lib/tfctl/jobs/digits").exists()


UNIT = "run/systemd/system/tfctl-digits-worker-0.service"


@pytest.mark.parametrize(
    ("file", "line", "other", "said"),
    [
        (names.DROP_IN, "", "", "10-tfctl.conf on "),
        (names.DROP_IN, "User=tfctl\n", "User=root\n", "10-tfctl.conf on "),
        (UNIT, "", "", f"{UNIT} on "),
        (UNIT, "NoNewPrivileges=yes\n", "", f"{UNIT} on "),
        (UNIT, "User=tfctl\n", "User=root\n", f"{UNIT} on "),
    ],
)
def test_start_is_undone_when_the_drop_in_or_a_unit_has_changed_since_it_reserved(
    file: str, line: str, other: str, said: str, tree: Tree
) -> None:
    """An empty line: the file is removed."""
    path = tree / file
    with tree.start() as session:
        reserve(session, make_plan())
        if line:
            path.write_text(path.read_text().replace(line, other))
        else:
            path.unlink()
        error = session.ask("go", "undone")["error"]
        assert (error["exit"], said in error["message"]) == (6, True), error
        assert error["remedy"] in ("run: tfctl provision INVENTORY --tags job_host", "start again")
    assert not [call for call in tree.calls() if call.startswith("start ")]
    assert tree.files() == ["run/tfctl/lock"]


def test_start_is_undone_however_deep_the_directories_are_that_its_task_has_made(tree: Tree) -> None:
    with tree.start() as session:
        reserve(session, make_plan())
        folder = str(tree / names.code_dir("digits", 1))
        for _ in range(1100):
            folder += "/d"
            os.mkdir(folder)  # noqa: PTH102  a Path would take minutes
        assert size_mib([tree / names.JOBS], time.monotonic() + 20) == 0
        session.process.kill()
        session.process.wait(10)
    with tree.start() as session:
        reserve(session, make_plan())


def test_a_version_of_systemd_that_cannot_be_read_counts_as_old() -> None:
    """With an old one, a unit of Type=exec may make the host stop answering."""
    assert not System(systemctl=("/bin/false",)).sees_execution()


def test_a_program_that_passes_its_limit_has_not_done_its_work() -> None:
    source, _ours = os.pipe()
    session = NodeSession(source, os.open(os.devnull, os.O_WRONLY))
    process = subprocess.Popen(["/bin/sleep", "600"], stderr=subprocess.PIPE, bufsize=0)
    assert process.stderr
    with process.stderr, pytest.raises(RequestRefused, match=r"^/bin/sleep on .* ran longer than 1 s and was killed$"):
        session.read_output(process, process.stderr, 1.0)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.extended
def test_node_sends_heartbeats_while_units_start(tree: Tree) -> None:
    (tree / "manager").mkdir()
    (tree / "manager/hold-start").touch()
    with tree.start() as session:
        reserve(session, make_plan())
        session.tell("go")
        assert session.hear() == ("beat", {})
        (tree / "manager/hold-start").unlink()
        session.expect("started")


@pytest.mark.extended
def test_node_waits_as_long_as_the_client_sends_heartbeats(tree: Tree) -> None:
    with tree.session("start", job="digits", code=None, ports=[2222, 2222], resolve=[], silence=3) as session:
        session.expect("hello")
        with session.beating():
            time.sleep(4)
        reserve(session, make_plan())


@pytest.mark.parametrize(("version", "kind"), [("252", "exec"), ("247", "simple")])
def test_start_is_undone_with_the_cause_when_a_program_cannot_be_executed(tree: Tree, version: str, kind: str) -> None:
    (tree / "manager").mkdir()
    (tree / "manager/version").write_text(version)
    with tree.start() as session:
        again = make_task(service="Restart=on-failure\nRestartSec=60s\n")
        reserve(session, make_plan(again, make_task("ps", 0)))
        assert f"\nType={kind}\n" in (tree / "run/systemd/system/tfctl-digits-ps-0.service").read_text()
        (tree / "var/lib/tfctl/home").rmdir()
        error = session.ask("go", "undone")["error"]
        assert error["exit"] == 6
        assert "worker/0 could not be started" in error["message"]
        assert "a directory that it may write to is missing" in error["message"]
        assert "systemd cannot execute it: status 226" in error["message"]
        assert tree.alive() == []
        assert session.process.wait(10) == 1
    (tree / "var/lib/tfctl/home").mkdir()
    with tree.start() as session:
        reserve(session, make_plan())
        session.ask("go", "started")


def test_a_program_that_ended_at_once_counts_as_started(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("exit 3"))))
    assert tree.wait_for("worker/0", "failed")["exit_code"] == 3


def test_next_attempt_keeps_the_record_of_the_previous_one(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("exit 4")), make_task("ps", 0, sh("exit 0"))))
    first = tree.wait_for("worker/0", "failed")
    with tree.start() as session:
        reserve(session, make_plan(make_task(attempt=2, run="22222222"), attempt=2, run="22222222"))
        assert session.hang_up() == 1
    assert tree.states(attempt=1)["worker/0"] == first
    with tree.start() as session:
        assert session.process.poll() is None
        reserve(session, make_plan(make_task(attempt=2, run="22222222"), attempt=2, run="22222222"))
        session.ask("go", "started")
        session.ask("keep", "kept")
    assert tree.states()["worker/0"]["state"] == "running"
    assert tree.states(attempt=1)["worker/0"] == first
    assert not (tree / "run/systemd/system/tfctl-digits-ps-0.service").exists()


def test_second_of_two_starts_is_refused_and_may_retry(tree: Tree) -> None:
    with tree.start() as first, tree.start() as second:
        reserve(first, make_plan())
        error = refused(second, make_plan())
        assert (error["exit"], error["retry"]) == (5, True)
        assert second.process.wait(10) == 1
        first.hang_up()
    with tree.start() as third:
        reserve(third, make_plan())


def test_two_concurrent_starts_never_both_reserve_the_job(tree: Tree) -> None:
    port = free_port()
    with tree.start("a") as first, tree.start("b") as second:
        for session, job in ((first, "a"), (second, "b")):
            session.tell("plan", make_plan(make_task(job=job, ports=[port]), job=job))
        answers = [session.hear() for session in (first, second)]
        assert sorted(answer[0] for answer in answers if answer) == ["refused", "reserved"]
        [error] = [answer[1]["error"] for answer in answers if answer and answer[0] == "refused"]
        assert error.get("retry") is True, error
        assert f"port {port}" in error["message"]


def test_a_refused_start_leaves_the_output_directory_to_the_start_that_holds_the_job(tree: Tree) -> None:
    """Both wait for the lock; the one that will be refused began to wait first."""
    port, output = free_port(), tree / "srv/tfctl/digits"
    other = "/srv/tfctl/other"
    tree.run(make_plan(make_task(job="other", command=STAY, ports=[port], output=other), job="other", output=other))
    with tree.start() as first, tree.start() as second:
        with lock(System(prefix=str(tree.path), account=ACCOUNT)):
            first.tell("plan", make_plan(make_task(ports=[port])))
            wait_until(lambda: waits_for_lock(tree, first.process.pid))
            second.tell("plan", make_plan())
            wait_until(lambda: waits_for_lock(tree, second.process.pid))
        first.expect("refused")
        assert first.process.wait(10) == 1
        second.expect("reserved")
        assert output.is_dir()
        second.hang_up()
    assert not output.exists()


def test_an_undone_start_leaves_the_output_directory_to_another_job_that_has_the_same(tree: Tree) -> None:
    output = tree / "srv/tfctl/digits"
    with tree.start() as first, tree.start("other") as second:
        reserve(first, make_plan())
        reserve(second, make_plan(make_task(job="other"), job="other", output="/srv/tfctl/digits"))
        first.hang_up()
        assert output.is_dir()
        second.ask("go", "started")


def test_an_undone_start_leaves_the_output_directory_to_a_start_that_has_only_a_reservation(tree: Tree) -> None:
    output = tree / "srv/tfctl/digits"
    system = System(prefix=str(tree.path), account=ACCOUNT)
    as_user(system, output.mkdir)
    descriptor = take(system, Reservation("other", 1, "r2", (), (), (), output="/srv/tfctl/digits"))
    undo_preparation(system, Reservation("digits", 1, RUN, (), (), (), made=(str(output),)))
    assert output.is_dir()
    os.close(descriptor)
    undo_preparation(system, Reservation("digits", 1, RUN, (), (), (), made=(str(output),)))
    assert not output.exists()


def test_directories_for_output_are_removed_although_the_start_ended_before_it_created_them_all(tree: Tree) -> None:
    outer = tree / "srv/tfctl/team"
    system = System(prefix=str(tree.path), account=ACCOUNT)
    as_user(system, lambda: (outer / "digits").mkdir(parents=True))
    made = tuple(map(str, (outer, outer / "digits", outer / "digits/1")))
    undo_preparation(system, Reservation("digits", 1, RUN, (), (), (), made=made))
    assert not outer.exists()


def waits_for_lock(tree: Tree, pid: int) -> bool:
    """Return whether the process of a start has opened the lock."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if link.readlink() == tree / "run/tfctl/lock":
                return True
    return False


@pytest.mark.parametrize("phase", ["reserved", "started"])
def test_next_start_undoes_what_a_killed_start_has_left(tree: Tree, phase: str) -> None:
    port = free_port()
    with tree.start("old") as session:
        reserve(session, make_plan(make_task(job="old", ports=[port]), job="old"))
        if phase == "started":
            session.ask("go", "started")
        session.process.send_signal(signal.SIGKILL)
        session.process.wait(10)
    assert (tree / "run/tfctl/reserved/old").exists()
    with tree.start("new") as session:
        reserve(session, make_plan(make_task(job="new", ports=[port]), job="new"))
    assert tree.alive() == []
    assert not [name for name in tree.files() if "old" in name]


@pytest.mark.extended
def test_process_that_survives_an_undo_stays_listed(tree: Tree) -> None:
    """Its ports stay reserved, and `stop` ends it once the file system on which it hangs works again."""
    port = free_port()
    with tree.start() as session:
        reserve(session, make_plan(make_task(ports=[port])))
        session.ask("go", "started")
        (tree / "manager/undying").touch()
        session.hang_up()
    (tree / "manager/undying").unlink()
    with tree.session("start", job="other", code=None, ports=[port, port], resolve=[]) as session:
        assert session.expect("hello")["ports"] == {str(port): "job digits, task worker/0"}
    assert tree.ask("stop", job="digits", attempt=None, tasks=None)["tasks"] == [["worker", 0]]
    assert tree.alive() == []


def test_a_start_that_could_not_be_undone_is_undone_by_the_next_one(tree: Tree) -> None:
    """systemd does not answer, so the units may run: their files stay until it does."""
    unit = tree / "run/systemd/system/tfctl-digits-worker-0.service"
    with tree.start() as session:
        reserve(session, make_plan())
        session.ask("go", "started")
        (tree / "manager/silent").touch()
        assert session.hang_up() == 1
    assert unit.exists()
    (tree / "manager/silent").unlink()
    with tree.start("other") as session:
        reserve(session, make_plan(make_task(job="other"), job="other"))
        assert not unit.exists()
        assert tree.alive() == []
    assert not [name for name in tree.files() if "digits" in name]


def test_a_reservation_that_cannot_be_written_leaves_nothing(tree: Tree) -> None:
    place = tree / "run/tfctl/reserved"
    (place / "digits/in the way").mkdir(parents=True)
    made = Reservation("digits", 1, RUN, (), (), ())
    with pytest.raises(OSError, match="directory"):
        take(System(str(tree.path)), made)
    assert [path.name for path in place.iterdir()] == ["digits"]


def test_code_that_two_starts_share_stays_when_one_is_undone(tree: Tree) -> None:
    with tree.start("a", CODE) as first:
        reserve(first, make_plan(make_task(job="a"), job="a", code=CODE), CODE)
        with tree.start("b", CODE) as second:
            first.hang_up()
            reserve(
                second,
                make_plan(make_task(command=["bin/run.sh"], job="b"), job="b", code=CODE),
            )
            second.ask("go", "started")


def test_share_reports_whether_hosts_share_the_output(tree: Tree) -> None:
    with tree.start() as session:
        reserve(session, make_plan())
        assert session.ask("share", "share", {"action": "find", "nonce": "nonce-001"}) == {"ok": False}
        assert session.ask("share", "share", {"action": "write", "nonce": "nonce-001"}) == {"ok": True}
        assert session.ask("share", "share", {"action": "find", "nonce": "nonce-001"}) == {"ok": True}
        assert names_in(tree / "srv/tfctl/digits") == [".tfctl-nonce-001"]
        assert session.ask("share", "share", {"action": "remove", "nonce": "nonce-001"}) == {"ok": True}
        assert names_in(tree / "srv/tfctl/digits") == []


@pytest.mark.parametrize("there", [True, False])
def test_share_removes_its_mark_when_the_client_disconnects(tree: Tree, there: bool) -> None:
    """Also where the output was there before, and so stays."""
    if there:
        tree.run(make_plan(make_task(command=sh("exit 0"))))
        tree.wait_for("worker/0", "succeeded")
    run = "22222222"
    with tree.start() as session:
        reserve(session, make_plan(make_task(attempt=2, run=run), attempt=2, run=run))
        session.ask("share", "share", {"action": "write", "nonce": "nonce-001"})
        assert session.hang_up() == 1
    assert (names_in(tree / "srv/tfctl/digits") == []) if there else not (tree / "srv/tfctl/digits").exists()


def test_hello_names_the_holders_of_ports(tree: Tree) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with tree.session("start", job="digits", code=None, ports=[port, port], resolve=[]) as session:
            assert session.expect("hello")["ports"] == {
                str(port): f"pid {os.getpid()} ({Path('/proc/self/comm').read_text().strip()})"
            }
    tree.run(make_plan(make_task(ports=[port])))
    with tree.session("start", job="other", code=None, ports=[port, port], resolve=[]) as session:
        assert session.expect("hello")["ports"] == {str(port): "job digits, task worker/0"}


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]
