"""The units of a job's guard, as root writes and removes them, and the requests that it may make."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_system import fake_system
from node_tree import ACCOUNT, RUN, Tree, as_guard, guarded, make_plan, refused

from tfctl.node import checks, guards, jobstore, names, wire
from tfctl.node.guard.head import Head
from tfctl.node.guard.host_access import HostAccess
from tfctl.node.system import System

#: Where Linux reports the length of the queue of a socket that listens: tcpi_sacked of struct tcp_info (tcp(7)).
BACKLOG = slice(28, 32)
NEXT = "89abcdef"  # the run of the next attempt


def test_a_failed_program_for_the_end_of_the_job_is_no_failed_unit_once_the_guard_is_removed(tree: Tree) -> None:
    """Otherwise `systemctl is-system-running` would say `degraded` until the next boot."""
    for unit in (names.guard_service("digits"), names.notify_service("digits")):
        (tree / names.UNITS / unit).touch()
    (tree / "manager").mkdir()
    failed = tree / f"manager/{names.notify_service('digits')}.state"
    failed.write_text("ActiveState=failed\nSubState=failed\n")
    guards.remove(fake_system(str(tree.path), ACCOUNT, 30.0), "digits")
    assert not failed.exists()
    assert not list((tree / names.UNITS).iterdir())


FOREIGN = {
    "exit": 2, "message": f"only the guard of digits may connect to this socket of {os.uname().nodename}", "remedy": "",
}  # fmt: skip
#: What /proc/PID/cgroup contains.
CGROUPS = {
    "v2": "0::/system.slice/{unit}\n",
    "v1": "9:name=systemd:/system.slice/{unit}\n4:memory:/system.slice/{unit}\n3:cpu,cpuacct:/\n",
    "v1-of-a-new-kernel": "1:name=systemd:/system.slice/{unit}\n2:pids:/\n0::/\n",
    "hybrid": "2:memory:/system.slice\n1:name=systemd:/system.slice/{unit}\n0::/system.slice/{unit}\n",
    "container": "1:name=systemd:/machine.slice/a:b.scope/payload/system.slice/{unit}\n0::/\n",
}


@pytest.mark.parametrize("version", CGROUPS)
def test_only_the_unit_of_its_guard_may_use_the_socket_of_a_job(version: str, tree: Tree) -> None:
    (tree / "cgroups").write_text(CGROUPS[version])
    tree.run(guarded())
    with as_guard(tree, "show") as session:
        session.expect("show")
    with as_guard(tree, "show", names.guard_service("other")) as session:
        assert session.expect("error") == FOREIGN


#: Requests that a guard may make about its own job.
REQUESTS: dict[str, dict[str, Any]] = {
    "show": {}, "stop": {"attempt": None, "tasks": None, "run": RUN}, "leave": {}, "notify": {"outcome": "{}"},
    "start": {"code": None, "ports": [1024, 1024], "resolve": [], "restart_of": 1},
}  # fmt: skip


OTHERS = (
    "tfctl-digits-worker-0.service", "tfctlguardroot-digits@0-1-0.service", "tfctlguard-digits.service (deleted)",
    "tfctlguard-digits.service/tfctlguard-digits.service", "user@1000.service/app.slice/tfctlguard-digits.service",
)  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "unit"),
    [*((verb, "tfctlguard-other.service") for verb in REQUESTS), *(("show", unit) for unit in OTHERS)],
)
def test_no_other_process_may_use_the_socket_of_a_guard(verb: str, unit: str, tree: Tree) -> None:
    tree.run(guarded())
    with as_guard(tree, verb, unit, **REQUESTS[verb]) as session:
        assert session.rest() == [("error", FOREIGN)]
    assert tree.states()["worker/0"]["state"] == "running"


@pytest.mark.parametrize("more", [{"jobs": ["other"]}, {"summaries": True}, {"rebooted": ["node1"]}])
def test_a_guard_is_shown_its_own_job_alone(tree: Tree, more: dict[str, Any]) -> None:
    tree.run(guarded())
    with as_guard(tree, "show") as session:
        assert [job["job"] for job in session.expect("show")["jobs"]] == ["digits"]
    with as_guard(tree, "show", **more) as session:
        error = session.expect("error")
        assert (error["exit"], error["message"]) == (2, "the guard of digits is not allowed to send this request")


def test_a_guard_cannot_change_how_the_next_attempt_is_guarded(tree: Tree) -> None:
    tree.run(guarded())
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    for port, key in ((2300, "b" * 64), (2300, None), (0, "b" * 64), (0, None)):
        next_one = {"record": guarded(2, "89abcdef", port=port)["record"], "guard": key and {"key": key}}
        with as_guard(tree, "start", code=None, ports=[1024, 1024], resolve=[], restart_of=1) as session:
            session.expect("hello")
            session.tell("rerun", next_one)
            if (port, key) == (0, None):
                session.expect("reserved")
            else:
                assert session.expect("error")["exit"] == 2


def test_systemd_starts_a_guard_again_until_it_has_failed_20_times_in_10_minutes(tree: Tree) -> None:
    tree.run(guarded())
    unit = (tree / names.UNITS / names.guard_service("digits")).read_text()
    assert {"StartLimitIntervalSec=600", "StartLimitBurst=20", "Restart=on-failure"} <= {*unit.splitlines()}


def goes_on(_tree: Tree) -> None: ...


def was_stopped(tree: Tree) -> None:
    jobstore.mark(fake_system(str(tree.path), ACCOUNT, 30.0), "digits", 1)


def is_over(tree: Tree) -> None:
    (tree / names.guard_dir("digits", 1) / "report.json").write_text('{"over": true}')


def guard_has_died(tree: Tree) -> None:
    (tree / f"manager/{names.guard_service('digits')}.state").write_text("ActiveState=failed\n")


@pytest.mark.parametrize(
    ("happened", "change", "refused"),
    [
        (goes_on, {}, True),
        (goes_on, {"guard": None, "record": make_plan(attempt=2, run=NEXT)["record"]}, True),
        (goes_on, {"guard": None}, False),
        (was_stopped, {}, False),
        (is_over, {}, False),
        (guard_has_died, {}, False),
    ],
    ids=["goes-on", "without-a-guard", "by-the-guard", "stopped", "over", "died"],
)
def test_a_job_is_not_started_while_the_guard_of_its_last_attempt_is_needed(
    tree: Tree, happened: Callable[[Tree], None], change: dict[str, Any], refused: bool
) -> None:
    """Its tasks on this host have ended, but others may go on elsewhere."""
    tree.run(guarded())
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    (tree / f"manager/{names.guard_service('digits')}.state").write_text("ActiveState=active\n")
    happened(tree)
    plan = wire.decode(wire.Plan, {**guarded(2, NEXT), **change})
    system = fake_system(str(tree.path), ACCOUNT, 30.0)
    refusals = []
    try:
        checks.free(system, plan)
    except checks.StillGuarded as refusal:
        refusals.append((refusal.error.exit, refusal.error.remedy))
    assert refusals == [(5, "stop it first: tfctl stop digits")] * refused


def test_a_guard_has_no_port_that_only_root_may_use(tree: Tree) -> None:
    with tree.start() as session:
        assert refused(session, guarded(port=80))["message"] == "80 is not a port for the guard"


def test_all_guards_of_a_large_job_can_connect_to_the_head_at_once(tmp_path: Path) -> None:
    """The program passes the socket of the unit to asyncio, which sets the length of its queue again."""
    record = wire.decode(wire.Record, guarded()["record"])
    here = HostAccess("digits", "node1", System(prefix=str(tmp_path)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)

        async def look() -> bytes:
            head = Head(here, b"", wire.JobStatus("digits", 1, RUN, record, None, ()), 0.0, listener)
            guarding = asyncio.ensure_future(head.run())
            await asyncio.sleep(0.1)
            found = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BACKLOG.stop)
            guarding.cancel()
            with suppress(asyncio.CancelledError):
                await guarding
            return found

        length = int.from_bytes(asyncio.run(look())[BACKLOG], sys.byteorder)
    [wanted] = re.findall(r"^Backlog=([0-9]+)$", guards._PEERS, re.MULTILINE)
    assert length == min(int(wanted), int(Path("/proc/sys/net/core/somaxconn").read_text()))


def test_no_attempt_begins_after_the_deadline_of_the_job(tmp_path: Path) -> None:
    """As when the guard has been killed before the attempt, and is started again late."""
    record = wire.decode(wire.Record, guarded(deadline=60)["record"])
    system = System(prefix=str(tmp_path))
    system.at(names.guard_dir("digits", 1)).mkdir(parents=True)
    failed = wire.TaskStatus("worker", 0, "failed", 7, None, 1.0, 2.0, 0)
    seen = wire.JobStatus("digits", 1, RUN, record, None, (failed,), True, wire.GuardReport(retry_at=1.0), True)

    async def step() -> None:
        await Head(HostAccess("digits", "node1", system), b"", seen, time.time() - 61.0)._step()

    asyncio.run(step())
    found = guards.report(system, "digits", 1)
    assert found
    assert found.reason == "worker/0 on node1 failed with exit code 7; the deadline has passed"
    assert (found.retry_at, found.final) == (None, True)
