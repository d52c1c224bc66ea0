"""What the head's guard decides, as far as no row of FAULTS in test_node_guard_faults.py shows it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node.test_node_guard_messages import local_node_part
from tfctl.node import wire
from tfctl.node.guard import keys
from tfctl.node.guard.host_access import HostAccess
from tfctl.node.guard.link import Pace, Standstill
from tfctl.node.guard.member import Member
from tfctl.node.guard.rules import Finish, NoteStall, Retry, StopEverywhere, StopTasks, View, next_action, verdict
from tfctl.node.guard.stalls import Watcher
from tfctl.node.system import System

CHIEF, PS, WORKER = ("chief", 0), ("ps", 0), ("worker", 0)
TASKS = (CHIEF, PS, WORKER)


def record(clean: Any = "running", **guard: Any) -> wire.Record:
    watched = wire.RecordedGuard("n1", "10.0.0.1", 2300, "0123abcd", lease=600, **{"max_attempts": 1, **guard})
    tasks = tuple(
        wire.RecordedTask(*name, f"n{number}", f"10.0.0.{number}", 2222, "") for number, name in enumerate(TASKS, 1)
    )
    policy = wire.RecordedPolicy(clean, 0, None, 30, 600)
    return wire.Record(
        "digits", 1, "0123abcd", "parameter_server", "tf2.15", "i.ini", "/srv/tfctl/digits", 1.0, policy, (CHIEF,),
        tasks, vital=((PS,),), guard=watched,
    )  # fmt: skip


def view(chief: str, ps: str, worker: str, of: wire.Record | None = None, code: int | None = None, **more: Any) -> View:
    states: Any = (chief, ps, worker)
    tasks = [
        wire.TaskStatus(*name, state, code if state == "failed" else None, None, 2.0, None, 0)
        for name, state in zip(TASKS, states, strict=True)
    ]
    return View(of or record(), tasks, **{"stopped": None, "age": 5.0, "attempt_age": 5.0, "ended_for": 2.0, **more})


def test_what_still_runs_is_stopped_once_the_deciders_have_succeeded() -> None:
    assert next_action(view("succeeded", "running", "running")) == StopTasks((PS, WORKER), "chief/0 has succeeded")


def test_nothing_is_stopped_if_the_policy_says_so() -> None:
    assert next_action(view("succeeded", "running", "running", record("none"))) == Finish()


def test_what_has_failed_first_may_be_reported_later() -> None:
    for clean in ("running", "none"):
        seen = view("failed", "running", "running", record(clean), code=1, ended_for=1.0)
        assert next_action(seen) is None
        assert next_action(seen._replace(ended_for=2.0)) is not None


@pytest.mark.parametrize(("number", "pause"), [(1, 10.0), (2, 20.0), (3, 40.0), (9, 300.0)])
def test_each_pause_before_an_attempt_is_twice_as_long_up_to_five_minutes(number: int, pause: float) -> None:
    of = record(max_attempts=10, number=number)
    assert next_action(view("failed", "stopped", "stopped", of, code=1)) == Retry(pause)


def test_all_tasks_are_stopped_before_another_attempt_even_if_nothing_is_to_be_cleaned() -> None:
    of = record("none", max_attempts=2)
    assert next_action(view("failed", "running", "stopped", of, code=1)) == StopTasks((PS,), "chief/0 has failed")
    assert next_action(view("failed", "unknown", "stopped", of, code=1)) is None
    assert next_action(view("failed", "stopped", "stopped", of, code=1)) == Retry(10.0)
    last = record("none", max_attempts=2, number=2)
    assert next_action(view("failed", "running", "stopped", last, code=1)) == Finish()


@pytest.mark.parametrize(
    ("policy", "again"),
    [
        ({}, True),
        ({"retry_exit_codes": (1, 7)}, True),
        ({"retry_exit_codes": (1,)}, False),
        ({"fail_exit_codes": (7,)}, False),
        ({"retry_exit_codes": (7,), "fail_exit_codes": (7,)}, False),
    ],
)
def test_exit_codes_decide_about_another_attempt(policy: dict[str, Any], again: bool) -> None:
    found = next_action(view("failed", "stopped", "stopped", record(max_attempts=2, **policy), code=7))
    assert isinstance(found, Retry if again else Finish)


@pytest.mark.parametrize(
    ("policy", "again"), [({"retry_exit_codes": (137,)}, True), ({"fail_exit_codes": (137,)}, False)]
)
def test_a_signal_counts_as_the_exit_code_that_a_shell_reports(policy: dict[str, Any], again: bool) -> None:
    seen = view("failed", "stopped", "stopped", record(max_attempts=2, **policy))
    killed = seen.tasks[0]._replace(signal="SIGKILL")
    assert isinstance(next_action(seen._replace(tasks=[killed, *seen.tasks[1:]])), Retry if again else Finish)


def test_a_job_that_the_guard_has_failed_ended_when_it_did() -> None:
    found = verdict(view("stopped", "stopped", "stopped", failure="it was not up in time", failed_at=7.0))
    assert (found.state, found.reason, found.finished) == ("failed", "it was not up in time", 7.0)


def test_there_is_no_other_attempt_after_a_stop_or_the_deadline() -> None:
    of = record(max_attempts=2, deadline=60)
    assert next_action(view("failed", "stopped", "stopped", of, code=1, stopped=4.0)) == Finish()
    assert next_action(view("failed", "stopped", "stopped", of, code=1, age=61.0)) == Finish()


def test_there_is_no_other_attempt_that_would_begin_after_the_deadline() -> None:
    of = record(max_attempts=3, number=2, deadline=60)
    assert next_action(view("failed", "stopped", "stopped", of, code=1, age=39.0)) == Retry(20.0)
    assert next_action(view("failed", "stopped", "stopped", of, code=1, age=41.0)) == Finish()


def test_a_stop_on_one_host_stops_all_of_them() -> None:
    assert next_action(view("stopped", "running", "running", stopped=4.0)) == StopEverywhere()
    assert next_action(view("stopped", "stopped", "unknown", stopped=4.0)) is None
    assert next_action(view("stopped", "stopped", "stopped", stopped=4.0)) == Finish()


def test_all_tasks_of_a_later_attempt_are_ended_at_the_deadline_of_the_job() -> None:
    found = next_action(view("running", "running", "starting", record(deadline=60, number=2), age=61.0))
    assert found == StopTasks(TASKS, "the deadline of 60 s has passed", overdue=True)


def test_a_server_that_does_not_listen_in_time_fails_the_job() -> None:
    of = record(start_timeout=30, servers=TASKS)
    assert next_action(view("running", "running", "running", of, attempt_age=29.0)) is None
    assert next_action(view("running", "running", "running", of, attempt_age=31.0, listened=set(TASKS))) is None
    found = next_action(view("running", "running", "running", of, attempt_age=31.0, listened={CHIEF, PS}))
    assert isinstance(found, StopTasks)
    assert found.failure.startswith("worker/0 on n3 did not listen on port 2222 within 30 s of the start")
    assert isinstance(next_action(view("stopped", "stopped", "stopped", of, failure=found.failure)), Finish)


def test_whether_a_task_listens_is_not_known_while_its_host_is_silent_or_has_not_reported() -> None:
    of = record(start_timeout=30, servers=TASKS)
    late = view("running", "running", "unknown", of, attempt_age=31.0, listened={CHIEF, PS})
    assert next_action(late) is None
    assert isinstance(next_action(late._replace(listened={CHIEF})), StopTasks)
    assert next_action(late._replace(listened={CHIEF}, watched_for=14.0)) is None
    short = record(start_timeout=5, servers=TASKS)
    deaf = view("running", "running", "running", short, attempt_age=5.5, watched_for=5.5)
    assert isinstance(next_action(deaf), StopTasks)


def test_guard_stops_checking_ports_when_all_servers_listen(tmp_path: Path) -> None:
    of = record(start_timeout=30, servers=(PS, WORKER))
    here = HostAccess("digits", "n2", System(prefix=str(tmp_path)))
    member = Member(here, b"", wire.JobStatus("digits", 1, of.run, of, None, ()))
    table = tmp_path / "proc/net/tcp"
    table.parent.mkdir(parents=True)
    table.write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    assert not member._more_tasks_listen()
    with table.open("a") as file:
        file.write("   0: 00000000:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000   880        0 19 1\n")
    assert member._more_tasks_listen()
    table.unlink()
    assert not member._more_tasks_listen()
    assert member._listening == (PS,)


@pytest.mark.parametrize(("state", "patience"), [("starting", 2.0), ("running", 30.0)])
def test_guard_soon_looks_again_at_a_task_that_systemd_may_not_start_again(
    state: wire.TaskStateName, patience: float, tmp_path: Path
) -> None:
    """When systemd gives up a task that it was about to start again, no file changes."""
    of = record()
    task = wire.TaskStatus(*PS, state, None, None, 2.0, None, 0)
    seen = wire.JobStatus("digits", 1, of.run, of, None, (task,))
    with local_node_part(tmp_path, wire.line(wire.Shown((seen,)))) as (here, run):
        run(here.show())
        run(asyncio.sleep(patience - 0.5))
        assert not here.changed()
        run(asyncio.sleep(1.0))
        assert here.changed()


def line(to_head: bool, nonce: str = "b" * 32) -> tuple[keys.Sealer, keys.Opener]:
    key = keys.session_key(b"k" * 32, "0123abcd", "n2", "a" * 32, nonce, to_head)
    return keys.Sealer(key), keys.Opener(key)


def test_a_message_arrives_as_it_was_sent() -> None:
    sealer, opener = line(to_head=True)
    assert [opener.open(sealer.seal(body)) for body in (b"one", b"two")] == [b"one", b"two"]


def test_a_repeated_a_missing_and_a_changed_message_are_noticed() -> None:
    sealer, _ = line(to_head=True)
    first, second = sealer.seal(b"one"), sealer.seal(b"two")
    for lines in ([first, first], [second], [first.replace(b"one", b"six")]):
        opener = line(to_head=True)[1]
        with pytest.raises(keys.Forged):
            for each in lines:
                opener.open(each)


def test_a_message_fits_no_other_connection_and_no_other_direction() -> None:
    sealed = line(to_head=True)[0].seal(b"one")
    for other in (line(to_head=False)[1], line(to_head=True, nonce="c" * 32)[1]):
        with pytest.raises(keys.Forged):
            other.open(sealed)


def test_a_host_that_measures_no_more_does_not_make_its_tasks_stand() -> None:
    watcher = Watcher(0.05)
    for step in (1, 2):
        sample = wire.Sample(time.time(), None, None, (wire.TaskSample(*WORKER, silent=0.0, step=step),))
        watcher.add(1, sample)
    time.sleep(0.1)
    assert watcher.pace(1) == Pace((WORKER,), ())
    watcher.add(1, sample)
    assert [task.name for task in watcher.pace(1).standing] == [WORKER]


@pytest.mark.parametrize(("on_stall", "noted"), [("report", False), ("restart", True), ("fail", True)])
def test_a_stall_that_was_noted_before_a_restart_of_the_guard_still_fails_the_job(on_stall: str, noted: bool) -> None:
    pace = Pace((), (Standstill(*WORKER, 100.0, True),))
    of = record(stall=60, on_stall=on_stall)
    seen = view("running", "running", "running", of, pace=pace, stall=wire.Stall(1.0, (WORKER,), "stood"))
    assert isinstance(next_action(seen), NoteStall) is noted
