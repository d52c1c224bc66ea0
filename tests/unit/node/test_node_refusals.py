"""Every reason for which a host refuses a plan, in its words and with its exit code."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from node_tree import Tree, free_port, make_plan, make_task, refused, reserve, sh, tarball

from tfctl.node import code, names, sockets
from tfctl.node.talk import Refused
from tfctl.node.world import World

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
def test_a_host_that_is_not_fit(tree: Tree, spoil: Callable[[Tree], None], plan: dict[str, Any], message: str) -> None:
    spoil(tree)
    before = tree.files()
    with tree.start() as talk:
        error = refused(talk, plan)
        assert error["exit"] == 8
        assert message in error["message"]
        assert error["remedy"]
    assert [name for name in tree.files() if name != "run/tfctl/lock"] == before
    assert not (tree / "srv/tfctl/digits").exists()


@pytest.mark.parametrize(
    ("account", "message"), [("tfctl-nobody", "has no user tfctl-nobody"), ("root", "user root of")]
)
def test_a_host_without_a_user_for_jobs(tree: Tree, account: str, message: str) -> None:
    with tree.start(account=account) as talk:
        error = refused(talk, make_plan())
        assert (error["exit"], message in error["message"]) == (8, True)
        assert error["remedy"] == "run: tfctl provision --tags job_host"


def test_each_tasks_own_stack_must_be_there(tree: Tree) -> None:
    """Two tasks of one host may have two; without its own a task would find another Python on the same PATH."""
    second = make_task("ps")
    second["env"] = second["env"].replace("tf2.15", "tf9")
    with tree.start() as talk:
        error = refused(talk, make_plan(make_task(), second, stack="tf2.15"))
        assert (error["exit"], error["stack"]) == (8, "tf9")


def test_a_host_without_room(tree: Tree) -> None:
    code.require_space(World(str(tree.path)))
    with pytest.raises(Refused, match="MB free; 1000000000200 MB are needed") as caught:
        code.require_space(World(str(tree.path)), 10**18)
    assert caught.value.error["exit"] == 8


@pytest.mark.parametrize(
    ("command", "taken"), [("./run.sh", True), ("run.sh", False), ("./notes.txt", False), ("./missing", False)]
)
def test_a_program_with_a_slash_is_looked_up_in_the_code(tree: Tree, command: str, taken: bool) -> None:
    with tree.start(code=CODE) as talk:
        plan = make_plan(make_task(command=[command]), code=CODE)
        if taken:
            reserve(talk, plan, CODE)
        else:
            assert refused(talk, plan, CODE)["exit"] == 8


def test_the_inventory_says_where_output_may_be(tree: Tree) -> None:
    (tree / "etc/tfctl").mkdir()
    (tree / "etc/tfctl/node.json").write_text(json.dumps({"output_roots": ["/mnt/a/", "/srv/tfctl/"]}))
    (tree / "srv/tfctl/away").symlink_to("/etc")
    with tree.start() as talk:
        error = refused(talk, make_plan(make_task(output="/srv/x"), output="/srv/x"))
        assert error["message"].endswith("/mnt/a, /srv/tfctl")
        error = refused(talk, make_plan(make_task(output="/srv/tfctl/away/x"), output="/srv/tfctl/away/x"))
        assert "outside the directories" in error["message"]
        error = refused(talk, make_plan(make_task(output="/srv/tfctl/a/../b"), output="/srv/tfctl/a/../b"))
        assert error["exit"] == 3
        reserve(talk, make_plan())


@pytest.mark.skipif(os.geteuid() != 0, reason="the jobs' user is another one only for root")
def test_an_output_that_the_jobs_cannot_write_to(tree: Tree) -> None:
    (tree / "srv/tfctl/digits").mkdir(0o755)
    with tree.start() as talk:
        error = refused(talk, make_plan())
        assert (error["exit"], "cannot write to /srv/tfctl/digits" in error["message"]) == (8, True)


def test_a_job_that_runs(tree: Tree) -> None:
    tree.run(make_plan())
    with tree.start() as talk:
        error = refused(talk, make_plan(make_task(attempt=2), attempt=2))
        assert (error["exit"], error["retry"]) == (5, False)
        assert "job digits, task worker/0 runs on" in error["message"]
        assert error["remedy"] == "stop it first: tfctl stop digits"


@pytest.mark.parametrize(("place", "said"), [("/etc/systemd/system/", "/etc/systemd/system/"), ("", "no file")])
def test_a_unit_of_that_name_from_elsewhere(tree: Tree, place: str, said: str) -> None:
    unit = "tfctl-digits-worker-0.service"
    (tree / "manager").mkdir()
    (tree / f"manager/{unit}.from").write_text(place and place + unit)
    with tree.start() as talk:
        error = refused(talk, make_plan())
    assert error["exit"] == 5
    assert error["retry"] is False
    assert f"has a unit {unit} that is not tfctl's: {said}" in error["message"]
    assert not [call for call in tree.calls() if call.startswith(("stop", "kill"))]


def test_an_attempt_that_is_there(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("exit 0"))))
    tree.wait_for("worker/0", "succeeded")
    with tree.start() as talk:
        error = refused(talk, make_plan())
        assert (error["exit"], "attempt 1 of job digits" in error["message"]) == (5, True)


def test_a_port_that_another_job_has_even_when_nothing_listens(tree: Tree) -> None:
    port = free_port()
    tree.run(make_plan(make_task(ports=[port])))
    with tree.start("other") as talk:
        error = refused(talk, make_plan(make_task(job="other", ports=[port]), job="other"))
        assert (error["exit"], error["retry"]) == (5, True)
        assert f"port {port} of" in error["message"]
        assert error["message"].endswith("is held by job digits, task worker/0")


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
def test_a_port_that_a_stranger_has(tree: Tree, address: str) -> None:
    with socket.socket() as taken:
        taken.bind((address, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with tree.start() as talk:
            error = refused(talk, make_plan(make_task(ports=[port])))
            assert (error["exit"], error["retry"]) == (5, False)
            assert f"is held by pid {os.getpid()} (" in error["message"]


@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="Linux has one")
def test_a_stranger_may_have_a_name_in_no_encoding() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, Path("/proc/self/comm").open("r+b", buffering=0) as name:
        before = name.read()
        name.write(b"na\xefve")
        try:
            assert sockets.holder(taken.getsockname()[1]) == f"pid {os.getpid()} (na\ufffdve)"
        finally:
            name.write(before.strip())


def test_a_port_of_a_job_that_has_ended_is_free(tree: Tree) -> None:
    port = free_port()
    tree.run(make_plan(make_task(ports=[port], command=sh("exit 0"))))
    tree.wait_for("worker/0", "succeeded")
    with tree.start("other") as talk:
        reserve(talk, make_plan(make_task(job="other", ports=[port]), job="other"))


def with_gpu(tree: Tree, users: str = "") -> None:
    program = tree / "usr/bin/nvidia-smi"
    program.write_text(
        f'#!/bin/sh\ncase $1 in --query-gpu=*) echo "0, {GPU}, 00000000:17:00.0, 81559 MiB, Disabled, NVIDIA H100" ;; '
        f'*) echo "{users}" ;; esac\n'
    )
    program.chmod(0o755)


def test_a_gpu_is_given_to_one_job_alone(tree: Tree) -> None:
    with_gpu(tree)
    known = {"uuid": GPU, "index": 0, "name": "NVIDIA H100", "memory_mib": 81559}
    with tree.talk("start", job="digits", code=None, ports=[2222, 2222], resolve=[]) as talk:
        assert talk.expect("hello")["gpus"] == [{**known, "holder": ""}]
        reserve(talk, make_plan(make_task(gpus=[GPU])))
        with tree.start("other") as second:
            error = refused(second, make_plan(make_task(job="other", gpus=[GPU]), job="other"))
            assert (error["exit"], error["retry"]) == (5, True)
        talk.ask("go", "started")
        talk.ask("keep", "kept")
    with tree.talk("start", job="other", code=None, ports=[2222, 2222], resolve=[]) as talk:
        assert talk.expect("hello")["gpus"] == [{**known, "holder": "job digits, task worker/0"}]
        error = refused(talk, make_plan(make_task(job="other", gpus=[GPU]), job="other"))
        assert (error["exit"], error["retry"]) == (5, True)


def test_a_gpu_that_a_stranger_computes_on(tree: Tree) -> None:
    with_gpu(tree, f"{GPU}, 4711, python")
    with tree.start() as talk:
        error = refused(talk, make_plan(make_task(gpus=[GPU])))
        assert (error["exit"], "is held by pid 4711 (python)" in error["message"]) == (5, True)
