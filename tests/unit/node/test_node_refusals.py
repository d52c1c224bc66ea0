"""Every reason for which a host refuses a plan, with the message and the exit code."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from node_tree import (
    ACCOUNT,
    RUN,
    Tree,
    free_port,
    make_plan,
    make_task,
    refused,
    request,
    reserve,
    sh,
    tarball,
    wait_until,
)

from tfctl.model.text import output_path
from tfctl.node import code, names, sockets, wire
from tfctl.node.asuser import as_user
from tfctl.node.exits import Exit
from tfctl.node.hello import hello
from tfctl.node.session import RequestRefused
from tfctl.node.system import System

CODE = tarball({"run.sh": "#!/bin/sh\n", "notes.txt": "no program\n"})
GPU = "GPU-8f2b1c5e-0000-4000-8000-000000000001"


def no_drop_in(tree: Tree) -> None:
    (tree / names.DROP_IN).write_text("[Service]\nUser=root\n")


def no_home(tree: Tree) -> None:
    (tree / "var/lib/tfctl/home").rmdir()


def nothing(_tree: Tree) -> None:
    pass


@pytest.mark.parametrize(
    ("spoil", "plan", "message"),
    [
        (no_drop_in, make_plan(), "10-tfctl.conf"),
        (no_home, make_plan(), "/var/lib/tfctl/home is missing"),
        (nothing, make_plan(stack="tf9"), "stack tf9 is not installed"),
        (nothing, make_plan(make_task(command=["pyhton", "x"])), "worker/0: program pyhton is not on the PATH"),
        (nothing, make_plan(make_task(command=["./run.sh"])), "worker/0: program ./run.sh is not in the code"),
        (nothing, make_plan(make_task(command=["/no/such"])), "program /no/such is not"),
        (nothing, make_plan(make_task(output="/etc/x"), output="/etc/x"), "output /etc/x is outside the directories"),
        (nothing, make_plan(make_task(output="/srv/tfctlx"), output="/srv/tfctlx"), "outside the directories"),
        (nothing, make_plan(make_task(gpus=[GPU])), f"has no GPU {GPU}"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_start_is_refused_by_an_unfit_host(
    tree: Tree, spoil: Callable[[Tree], None], plan: dict[str, Any], message: str
) -> None:
    spoil(tree)
    before = tree.files()
    with tree.start() as session:
        error = refused(session, plan)
        assert error["exit"] == 8
        assert message in error["message"]
        assert error["remedy"]
    assert [name for name in tree.files() if name != "run/tfctl/lock"] == before
    assert not (tree / "srv/tfctl/digits").exists()


@pytest.mark.parametrize(
    ("account", "message"), [("tfctl-nobody", "has no user tfctl-nobody"), ("root", "user root of")]
)
def test_start_is_refused_when_the_job_user_is_missing(tree: Tree, account: str, message: str) -> None:
    with tree.start(account=account) as session:
        error = refused(session, make_plan())
        assert (error["exit"], message in error["message"]) == (8, True)
        assert error["remedy"] == "run: tfctl provision INVENTORY --tags job_host"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "mount it read-write there (mount -o remount,rw), or choose another directory"),
        (errno.ENOSPC, "make room there; tfctl prune deletes jobs that are over"),
        (errno.EACCES, "run: tfctl provision INVENTORY --tags job_host"),
        (errno.EIO, "check that file system; run on the host: findmnt; dmesg"),
    ],
)
def test_a_file_system_that_cannot_be_written_to_gets_a_remedy_that_helps(number: int, remedy: str) -> None:
    def fail() -> None:
        raise OSError(number, os.strerror(number), "/srv/tfctl/digits")

    with pytest.raises(RequestRefused) as refusal:
        as_user(System(account=ACCOUNT), fail)
    error = refusal.value.error
    assert (error.exit, error.remedy) == (8, remedy)
    assert error.message.endswith(f"{os.strerror(number)}: /srv/tfctl/digits")


def test_start_is_refused_when_the_stack_of_one_task_is_missing(tree: Tree) -> None:
    """Two tasks of one host may have different stacks. Without its own, a task would run another Python."""
    second = make_task("ps")
    second["env"] = second["env"].replace("tf2.15", "tf9")
    with tree.start() as session:
        error = refused(session, make_plan(make_task(), second, stack="tf2.15"))
        assert (error["exit"], error["stack"]) == (8, "tf9")


def test_a_host_refuses_a_plan_when_the_directory_of_the_jobs_is_full(tree: Tree) -> None:
    (tree / "var/lib/tfctl/jobs").symlink_to("/proc")  # a file system that never has room
    with tree.start() as session:
        error = refused(session, make_plan())
    assert error["exit"] == 8
    assert error["message"].startswith("/var/lib/tfctl/jobs on ")
    assert error["message"].endswith(" has 0 MB free; 200 MB are needed")


def test_start_is_refused_when_there_is_too_little_disk_space(tree: Tree) -> None:
    code.require_space(System(str(tree.path)))
    with pytest.raises(RequestRefused, match="MB free; 1000000000200 MB are needed") as caught:
        code.require_space(System(str(tree.path)), 10**18)
    assert caught.value.error.exit == 8


@pytest.mark.parametrize(
    ("command", "taken"), [("./run.sh", True), ("run.sh", False), ("./notes.txt", False), ("./missing", False)]
)
def test_a_program_with_a_slash_is_looked_up_in_the_code(tree: Tree, command: str, taken: bool) -> None:
    with tree.start(code=CODE) as session:
        plan = make_plan(make_task(command=[command]), code=CODE)
        if taken:
            reserve(session, plan, CODE)
        else:
            assert refused(session, plan, CODE)["exit"] == 8


def test_start_is_refused_for_an_output_outside_the_output_roots(tree: Tree) -> None:
    (tree / "etc/tfctl").mkdir()
    (tree / "etc/tfctl/node.json").write_text(json.dumps({"output_roots": ["/mnt/a/", "/srv/tfctl/"]}))
    (tree / "srv/tfctl/away").symlink_to("/etc")
    with tree.start() as session:
        error = refused(session, make_plan(make_task(output="/srv/x"), output="/srv/x"))
        assert error["message"].endswith("/mnt/a, /srv/tfctl")
    with tree.start() as session:
        error = refused(session, make_plan(make_task(output="/srv/tfctl/away/x"), output="/srv/tfctl/away/x"))
        assert "outside the directories" in error["message"]
    with tree.start() as session:
        error = refused(session, make_plan(make_task(output="/srv/tfctl/a/../b"), output="/srv/tfctl/a/../b"))
        assert error["exit"] == 3
    with tree.start() as session:
        reserve(session, make_plan())


@pytest.mark.parametrize("output", ["/home/me/out", "/root/out", "/run/user/1000", "/srv/tfctl/away/x"])
def test_start_is_refused_for_an_output_that_units_cannot_see(tree: Tree, output: str) -> None:
    for folder in ("etc/tfctl", "home/me"):
        (tree / folder).mkdir(parents=True)
    (tree / "etc/tfctl/node.json").write_text(json.dumps({"output_roots": ["/"]}))
    (tree / "srv/tfctl/away").symlink_to(tree / "home/me")
    with tree.start() as session:
        error = refused(session, make_plan(make_task(output=output), output=output))
    assert error["exit"] == 8
    assert "which jobs cannot see" in error["message"]


def test_job_file_and_host_accept_the_same_outputs(tree: Tree) -> None:
    output = output_path("/srv/tfctl/lr=0.01,a@b+c:d")
    with tree.start() as session:
        reserve(session, make_plan(make_task(output=output), output=output))


@pytest.mark.skipif(os.geteuid() != 0, reason="the jobs' user is another one only for root")
def test_start_is_refused_when_jobs_cannot_write_to_the_output(tree: Tree) -> None:
    (tree / "srv/tfctl/digits").mkdir(0o755)
    with tree.start() as session:
        error = refused(session, make_plan())
        assert (error["exit"], "cannot write to /srv/tfctl/digits" in error["message"]) == (8, True)


def test_start_is_refused_while_the_job_runs(tree: Tree) -> None:
    tree.run(make_plan())
    with tree.start() as session:
        error = refused(session, make_plan(make_task(attempt=2), attempt=2))
        assert (error["exit"], error["retry"]) == (5, False)
        assert "job digits, task worker/0 runs on" in error["message"]
        assert error["remedy"] == "stop it first: tfctl stop digits"


@pytest.mark.parametrize(("place", "said"), [("/etc/systemd/system/", "/etc/systemd/system/"), ("", "no file")])
def test_start_is_refused_when_a_foreign_unit_has_the_same_name(tree: Tree, place: str, said: str) -> None:
    unit = "tfctl-digits-worker-0.service"
    (tree / "manager").mkdir()
    (tree / f"manager/{unit}.from").write_text(place and place + unit)
    with tree.start() as session:
        error = refused(session, make_plan())
    assert error["exit"] == 5
    assert error["retry"] is False
    assert f"has a unit {unit} that is not tfctl's: {said}" in error["message"]
    assert not [call for call in tree.calls() if call.startswith(("stop", "kill"))]


def test_start_is_refused_for_an_attempt_that_exists(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("exit 0"))))
    tree.wait_for("worker/0", "succeeded")
    with tree.start() as session:
        error = refused(session, make_plan())
        assert (error["exit"], "attempt 1 of job digits" in error["message"]) == (5, True)


def test_start_is_refused_for_a_port_of_another_job_even_if_nothing_listens(tree: Tree) -> None:
    port = free_port()
    tree.run(make_plan(make_task(ports=[port])))
    with tree.start("other") as session:
        error = refused(session, make_plan(make_task(job="other", ports=[port]), job="other"))
        assert (error["exit"], error["retry"]) == (5, True)
        assert f"port {port} of" in error["message"]
        assert error["message"].endswith("is held by job digits, task worker/0")


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
def test_start_is_refused_for_a_port_of_a_foreign_process(tree: Tree, address: str) -> None:
    with socket.socket() as taken:
        taken.bind((address, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with tree.start() as session:
            error = refused(session, make_plan(make_task(ports=[port])))
            assert (error["exit"], error["retry"]) == (5, False)
            assert f"is held by pid {os.getpid()} (" in error["message"]


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="Linux has one")
def test_refusal_names_a_foreign_process_whose_name_is_not_utf_8() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, Path("/proc/self/comm").open("r+b", buffering=0) as name:
        before = name.read()
        name.write(b"na\xefve")
        try:
            assert sockets.holder(taken.getsockname()[1]) == f"pid {os.getpid()} (na\ufffdve)"
        finally:
            name.write(before.strip())


def test_hello_lists_proc_once_however_many_ports_strangers_have(tree: Tree) -> None:
    system = System(prefix=str(tree.path), nvidia_smi=(f"{tree.path}/usr/bin/nvidia-smi",))
    listings: list[str] = []
    counting = True

    def count(event: str, arguments: tuple[object, ...]) -> None:
        if counting and event in ("os.listdir", "os.scandir") and str(arguments[0]) == "/proc":
            listings.append(event)

    with contextlib.ExitStack() as servers:
        for port in range(23300, 23310):
            with contextlib.suppress(OSError):  # another process may have it
                servers.enter_context(socket.create_server(("127.0.0.1", port)))
        sys.addaudithook(count)
        found = hello(system, wire.StartRequest("digits", None, (23300, 23309)), code=True, restartable=())
        counting = False
    assert list(found.ports) == list(range(23300, 23310))
    assert f"pid {os.getpid()} (" in found.ports[23300] + found.ports[23309]
    assert len(listings) == 1


def test_a_port_of_a_job_that_has_ended_is_free(tree: Tree) -> None:
    port = free_port()
    tree.run(make_plan(make_task(ports=[port], command=sh("exit 0"))))
    tree.wait_for("worker/0", "succeeded")
    with tree.start("other") as session:
        reserve(session, make_plan(make_task(job="other", ports=[port]), job="other"))


def with_gpu(tree: Tree, users: str = "") -> None:
    program = tree / "usr/bin/nvidia-smi"
    program.write_text(
        "#!/bin/sh\ncase $1 in --query-gpu=*) "
        f'echo "0, {GPU}, 00000000:17:00.0, 81559 MiB, Disabled, No, No, [N/A], NVIDIA H100" ;; '
        f'*) echo "{users}" ;; esac\n'
    )
    program.chmod(0o755)


def test_a_gpu_is_given_to_one_job_alone(tree: Tree) -> None:
    with_gpu(tree)
    known = {"uuid": GPU, "index": 0, "name": "NVIDIA H100", "memory_mib": 81559}
    with tree.session("start", job="digits", code=None, ports=[2222, 2222], resolve=[]) as session:
        assert session.expect("hello")["gpus"] == [{**known, "holder": ""}]
        reserve(session, make_plan(make_task(gpus=[GPU])))
        with tree.start("other") as second:
            error = refused(second, make_plan(make_task(job="other", gpus=[GPU]), job="other"))
            assert (error["exit"], error["retry"]) == (5, True)
        session.ask("go", "started")
        session.ask("keep", "kept")
    with tree.session("start", job="other", code=None, ports=[2222, 2222], resolve=[]) as session:
        assert session.expect("hello")["gpus"] == [{**known, "holder": "job digits, task worker/0"}]
        error = refused(session, make_plan(make_task(job="other", gpus=[GPU]), job="other"))
        assert (error["exit"], error["retry"]) == (5, True)


def test_start_is_refused_for_a_gpu_that_a_foreign_process_uses(tree: Tree) -> None:
    with_gpu(tree, f"{GPU}, 4711, python")
    with tree.start() as session:
        error = refused(session, make_plan(make_task(gpus=[GPU])))
        assert (error["exit"], "is held by pid 4711 (python)" in error["message"]) == (5, True)


def test_a_session_has_several_requests_if_the_client_says_so(tree: Tree) -> None:
    with tree.session("show", more=True) as session:
        assert session.expect("show")["jobs"] == []
        session.say(request("nodes", more=True))
        assert session.expect("node")["protocol"] == wire.PROTOCOL
        session.say(request("show"))
        assert session.rest()[-1][0] == "show"
        assert session.process.wait(10) == 0


def test_a_session_ends_in_good_order_if_no_further_request_comes(tree: Tree) -> None:
    with tree.session("show", more=True) as session:
        session.expect("show")
        assert session.hang_up() == 0
    with tree.session("show", more=True, silence=0.5) as session:
        session.expect("show")
        assert session.process.wait(10) == 0


def test_a_session_ends_with_the_first_request_that_is_refused(tree: Tree) -> None:
    with tree.session("show", more=True) as session:
        session.expect("show")
        session.say(request("logs", job="digits", more=True))
        assert session.expect("error")["exit"] == Exit.NOT_FOUND
        assert session.process.wait(10) == 1


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("output",), "/home/alice", "has another output or other code"),
        (("output",), "/srv/tfctl/digits/", "has another output or other code"),
        (("code",), "0" * 64, "has another output or other code"),
        (("run",), "89abcdef", "is of another attempt"),
        (("stack",), "../tf2.15", "is not a stack's name"),
        (("tasks", 0, "host"), "x\u202ey", "is not a host's name"),
        (("tasks", 0, "host"), "-oProxyCommand=id", "is not a host's name"),
        (("tasks", 0, "host"), "..", "is not a host's name"),
        (("tasks", 0, "host"), "a/b", "is not a host's name"),
        (("tasks", 0, "host"), "a\u200bb", "is not a host's name"),
        (("tasks", 0, "host"), "a\nb", "is not a host's name"),
        (("tasks", 0, "host"), "a" * 256, "is not a host's name"),
        (("tasks", 0, "address"), "a b", "is not an address"),
        (("tasks", 0, "address"), "$(id)", "is not an address"),
        (("tasks", 0, "address"), "-v", "is not an address"),
        (("tasks", 0, "port"), 0, "is not a port"),
        (("tasks", 0, "gpus"), ["a;b"], "is not a GPU"),
        (("tasks", 0, "unit"), "ssh.service", "is not the unit of worker/0"),
        (("guard", "address"), "10.9.0.1;id", "is not an address"),
    ],
)
def test_start_is_refused_for_a_record_with_a_value_that_other_commands_would_obey(
    place: tuple[str | int, ...], value: object, said: str, tree: Tree
) -> None:
    plan = make_plan()
    guard = {"head": "node1", "address": "10.9.0.1", "port": 0, "origin": RUN, "lease": 600, "max_attempts": 2}
    plan = {**plan, "guard": {"key": 64 * "0"}, "record": {**plan["record"], "guard": guard}}
    *outer, last = place
    within = plan["record"]
    for key in outer:
        within = within[key]
    within[last] = value
    with tree.start() as session:
        error = refused(session, plan)
    assert (error["exit"], said in error["message"]) == (2, True), error
    assert tree.files() == []


@pytest.mark.parametrize("going", ["running", "starting", "awaiting its next attempt"])
@pytest.mark.parametrize(
    ("there", "wanted", "said"),
    [
        ("/srv/tfctl/a", "/srv/tfctl/a/b", "is below /srv/tfctl/a, the output of job other"),
        ("/srv/tfctl/a/b/c", "/srv/tfctl/a", "contains /srv/tfctl/a/b/c, the output of job other"),
        ("/srv/tfctl/a", "/srv/tfctl/link/b", "is below /srv/tfctl/a, the output of job other"),
        ("/srv/tfctl/link/b", "/srv/tfctl/a", "contains /srv/tfctl/link/b, the output of job other"),
        ("/srv/tfctl/a", "/srv/tfctl/a", ""),
        ("/srv/tfctl/a", "/srv/tfctl/link", ""),
        ("/srv/tfctl/a", "/srv/tfctl/ab", ""),
        ("/srv/tfctl/a/b", "/srv/tfctl/a/c", ""),
    ],
)
def test_start_is_refused_for_an_output_within_that_of_another_job_that_goes_on(
    going: str, there: str, wanted: str, said: str, tree: Tree
) -> None:
    """Its tasks could replace the inner directory by a link, which systemd would follow."""
    (tree / "srv/tfctl/link").symlink_to("a")
    (tree / "srv/tfctl/a").mkdir()
    os.chown(tree / "srv/tfctl/a", pwd.getpwnam(ACCOUNT).pw_uid, -1)
    over = sh("exit 0")
    plan = make_plan(make_task(job="other", output=there, command=over), job="other", output=there)
    with tree.start("other") as session:
        if going == "running":
            plan = make_plan(job="other", output=there)
            tree.run(plan)
        elif going == "starting":
            reserve(session, plan)
        else:
            tree.run(plan)
            (tree / names.UNITS / names.guard_service("other")).write_text("")
        with tree.start() as own:
            mine = make_plan(make_task(output=wanted), output=wanted)
            if said:
                error = refused(own, mine)
                assert (error["exit"], error["retry"]) == (5, False)
                assert f"output {wanted} {said}, which runs on " in error["message"]
                assert error["remedy"].endswith("beside it, or stop that job first: tfctl stop other")
            else:
                reserve(own, mine)


def test_an_output_within_that_of_a_job_that_is_over_is_free(tree: Tree) -> None:
    tree.run(make_plan(make_task(job="other", output="/srv/tfctl/a", command=sh("exit 0")), job="other",
                       output="/srv/tfctl/a"))  # fmt: skip
    wait_until(lambda: tree.alive() == [])
    with tree.start() as session:
        reserve(session, make_plan(make_task(output="/srv/tfctl/a/b"), output="/srv/tfctl/a/b"))
