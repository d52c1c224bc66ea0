"""What becomes of jobs of each strategy, without a client, when tasks, hosts, networks and guards fail.

The guards, their rules and the jobs are real; hosts, time and network are simulated (simulated_hosts.py). Each fault of
the table FAULTS meets a job of each strategy, once until the job is over and once with a `stop` in the middle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
from simulated_hosts import GUARDS_S, SimulatedHosts
from simulated_network import EPOCH

from tests.unit.model.four_hosts import INVENTORY
from tfctl.model import load, plan
from tfctl.model.assign import assign
from tfctl.model.host import Site
from tfctl.model.job import Job
from tfctl.model.layout import lay_out
from tfctl.node import wire
from tfctl.node.wire import TaskName

LEASE = 30
#: How long a network is cut so that connections break, but the lease does not pass.
SHORT = 17
DRAIN = 40
#: The roles of a job of each strategy on three hosts. The first decider, and so the head, is on node1.
ROLES = {
    "tf1_ps": "{ps: {replicas: 1, hosts: node3}, worker: {replicas: 2, hosts: 'node1,node2'}}",
    "parameter_server": "{chief: {replicas: 1, hosts: node1}, worker: {replicas: 2, hosts: 'node2,node3'}, "
    "ps: {replicas: 1, hosts: node3}, evaluator: {replicas: 1, hosts: node3}}",
    "multi_worker_mirrored": "{worker: {replicas: 3, hosts: 'node1,node2,node3'}, "
    "evaluator: {replicas: 1, hosts: node3}}",
    "horovod": "{worker: {replicas: 3, hosts: 'node1,node2,node3'}}",
}
ALL = tuple(ROLES)
#: Strategies whose jobs go on without the task on node2, which is a worker.
SPARE = ("tf1_ps", "parameter_server")
EVERY_WORKER = ("multi_worker_mirrored", "horovod")
#: Strategies whose tasks listen on ports that TF_CONFIG lists.
SERVED = ("tf1_ps", "parameter_server", "multi_worker_mirrored")
#: Strategies with tasks that may go on after the deciders: an evaluator, or workers of TensorFlow 1.
DRAINED = ("tf1_ps", "parameter_server", "multi_worker_mirrored")

#: The state of a job, the exit code of `tfctl wait`, and a pattern of the reason.
Outcome = tuple[str, int, str]
SUCCEEDED = ("succeeded", 0, "^$")
STOPPED = ("stopped", 103, "^$")


@dataclass
class Run:
    """A job that runs, and what a fault needs to know about it."""

    hosts: SimulatedHosts
    strategy: str
    deciders: tuple[TaskName, ...]
    leaving: tuple[TaskName, ...]

    def succeed(self) -> None:
        """Let the deciders succeed, and soon after them the other tasks that end by themselves."""
        self.hosts.end(self.deciders)
        self.hosts.advance(2.0)
        self.hosts.end(self.leaving)

    def __getitem__(self, number: int) -> Any:
        return self.hosts.hosts[f"node{number}"]


Step = Callable[[Run], None]


def wait(seconds: float) -> Step:
    return lambda run: run.hosts.advance(seconds)


def succeed(run: Run) -> None:
    run.succeed()


def deciders_succeed(run: Run) -> None:
    run.hosts.end(run.deciders)


def first_fails(run: Run) -> None:
    run.hosts.end(run.deciders[:1], 7)


def kill_guards(*numbers: int, for_good: bool = False) -> Step:
    def act(run: Run) -> None:
        for number in numbers:
            run[number].kill_guard(for_good=for_good)

    return act


def power_off(number: int) -> Step:
    return lambda run: run[number].power_off()


def power_on(number: int) -> Step:
    return lambda run: run[number].power_on()


def cut(*others: int) -> Step:
    """Cut these hosts off from the head."""

    def act(run: Run) -> None:
        for number in others:
            run.hosts.network.cut("node1", f"node{number}")

    return act


def heal(run: Run) -> None:
    run.hosts.network.heal()


def a_client_looks(run: Run) -> None:
    run.hosts.read()


def the_others_fail(run: Run) -> None:
    """Let the tasks of the hosts that are left fail, as ranks do when one is gone."""
    run.hosts.end(run.deciders, 1)


def deafen(number: int) -> Step:
    """Let no task of this host listen."""
    return lambda run: run[number].deafen()


def listen(number: int) -> Step:
    return lambda run: run[number].deafen(False)


def set_clock(number: int, ahead: float) -> Step:
    """Set the clock of this host, as chrony does when it steps."""

    def act(run: Run) -> None:
        run.hosts.network.ahead[f"node{number}"] = ahead

    return act


def sampled(progress: Literal["steps", "lines"]) -> Step:
    """Let the hosts sample how far the tasks are: by their steps, or only by when they have printed something."""

    def act(run: Run) -> None:
        for host in run.hosts.hosts.values():
            host.progress = progress

    return act


def stand_still(*numbers: int) -> Step:
    """Let the tasks of these hosts make no progress."""

    def act(run: Run) -> None:
        for number in numbers:
            run[number].stands_since = run.hosts.network.now

    return act


def move(run: Run) -> None:
    for host in run.hosts.hosts.values():
        host.stands_since = None


def hang(number: int) -> Step:
    """Let no signal end the tasks of this host."""
    return lambda run: run[number].hang()


def silence_systemd(number: int) -> Step:
    """Let systemctl get no answer on this host, so that the node part fails."""
    return lambda run: run[number].silence_systemd()


def systemd_answers(number: int) -> Step:
    return lambda run: run[number].silence_systemd(False)


def writes_slowly(number: int, seconds: float) -> Step:
    """Let a start take this long to write its files on this host, as while it copies much code."""

    def act(run: Run) -> None:
        run[number].writes_for = seconds

    return act


def keeps_slowly(number: int, seconds: float) -> Step:
    """Let this host take this long to keep the next attempt."""

    def act(run: Run) -> None:
        run[number].keep_for = seconds

    return act


def when_kept(number: int, step: Step) -> Step:
    """Let this happen at the moment in which this host keeps the next attempt."""

    def act(run: Run) -> None:
        run[number].at_keep = lambda: step(run)

    return act


def expect(outcome: Outcome) -> Step:
    """Check what a client sees now."""
    return lambda run: agrees(run.hosts.outcome(), outcome)


@dataclass(frozen=True)
class Fault:
    """``before``, ``after``: what happens before and after the middle, in which a stop may come. ``outcomes``: those of
    the job by strategies. ``stopped``: that after a stop in the middle. ``kept``: the hosts that the
    client told to keep the start before it was killed. ``within``: how long (s) the job may go on after the last step.
    ``left``: what nobody stops after that."""

    before: tuple[Step, ...]
    after: tuple[Step, ...]
    outcomes: dict[tuple[str, ...], Outcome]
    stopped: Outcome | dict[tuple[str, ...], Outcome] = STOPPED
    policy: str = ""
    kept: tuple[str, ...] | None = None
    within: float = 15.0
    left: str = ""


def lost(task: str, how: str) -> Outcome:
    return ("failed", 100, f"^{task} is lost: .*{how}")


SILENT = "has not answered the guard of the job"
REBOOTED = "was shut down or rebooted"
CONTACT = ("failed", 100, r"^node[23] has not heard from the guard on node1 for 30 s \(policy: lease\)$")
UNHEARD = r"^node[23] has not heard from the guard on node1 for (30|60) s \(policy: lease\)$"
DEAF = ("failed", 100, r"did not listen on port \d+\b.* within \d+ s of the start \(policy: start_timeout\)$")
STALLED = r"has made no step for 30 s.* \(policy: stall\)$"
NOTHING_PRINTED = r"has printed nothing for 30 s, nor have \d other tasks \(policy: stall\)$"
FAILED = ("failed", 100, r"^(worker|chief)/0 on node1 failed with exit code 7$")
#: The task that fails the job when node3 is lost, and when all hosts but the head are.
THIRD = {SPARE: "ps/0 on node3", EVERY_WORKER: "worker/2 on node3"}
OTHERS = {
    ("tf1_ps",): "ps/0 on node3", ("parameter_server",): "worker/0 on node2", EVERY_WORKER: "worker/1 on node2",
}  # fmt: skip

FAULTS = {
    "the client is killed after the start": Fault((wait(5),), (succeed,), {ALL: SUCCEEDED}),
    "the client is killed when only the head keeps the start": Fault(
        (wait(5),),
        (wait(LEASE + 30),),
        {group: lost(task, SILENT) for group, task in OTHERS.items()},
        kept=("node1",),
    ),
    "the client is killed when all but the head keep the start": Fault(
        (wait(5),), (wait(LEASE),), {ALL: CONTACT}, kept=("node2", "node3")
    ),
    "a guard is killed": Fault((wait(5), kill_guards(2)), (wait(5), succeed), {ALL: SUCCEEDED}),
    "the guard of the head is killed": Fault((wait(5), kill_guards(1)), (wait(5), succeed), {ALL: SUCCEEDED}),
    "all guards are killed at once": Fault((wait(5), kill_guards(1, 2, 3)), (wait(5), succeed), {ALL: SUCCEEDED}),
    "the guard of the head is killed while the job ends": Fault(
        (wait(5), kill_guards(1), succeed), (), {ALL: SUCCEEDED}, stopped=SUCCEEDED
    ),
    "the guard of the head is gone": Fault(
        (wait(5), kill_guards(1, for_good=True)), (wait(LEASE + 2),), {ALL: CONTACT}, left="0 on node1$"
    ),
    # The order to stop what is left there is lost, and the guards notice the cut only later.
    "a host is cut off while the job ends": Fault(
        (wait(5), cut(3), succeed), (wait(SHORT), heal), {ALL: SUCCEEDED}, stopped=SUCCEEDED
    ),
    # Its guard looks again after half a minute.
    "a host cannot stop its tasks when the job ends": Fault(
        (wait(5),), (silence_systemd(3), succeed, wait(20), systemd_answers(3), wait(30)), {ALL: SUCCEEDED}
    ),
    "a task does not end when the job ends": Fault(
        (wait(5),), (hang(3), succeed, wait(LEASE + 80)), {SPARE: SUCCEEDED}, left="on node3$"
    ),
    "the head is powered off": Fault((wait(5), power_off(1)), (wait(LEASE + 16),), {ALL: CONTACT}),
    "the head is rebooted": Fault(
        (wait(5), power_off(1), wait(10), power_on(1)),
        (wait(LEASE),),
        {ALL: CONTACT},
        stopped=lost("(chief|worker)/0 on node1", REBOOTED),
    ),
    "a host is cut off for less than the lease": Fault(
        (wait(5), cut(2), wait(SHORT), heal), (wait(5), succeed), {ALL: SUCCEEDED}
    ),
    "all hosts are cut off for less than the lease": Fault(
        (wait(5), cut(2, 3), wait(SHORT), heal), (wait(5), succeed), {ALL: SUCCEEDED}
    ),
    "a host is cut off for longer than the lease": Fault(
        (wait(5), cut(2), wait(10)),
        (wait(LEASE + 32), heal, succeed),
        {SPARE: SUCCEEDED, EVERY_WORKER: lost("worker/1 on node2", SILENT)},
    ),
    "a job that goes on without a host is stopped or succeeds": Fault(
        (wait(5), cut(2), wait(LEASE + 1)), (wait(31), heal, succeed), {SPARE: SUCCEEDED}
    ),
    "a job that goes on without a host fails": Fault(
        (wait(5), cut(2), wait(LEASE + 32), first_fails), (), {SPARE: FAILED}, stopped=FAILED
    ),
    # Its guard gives up after a minute. Clients say so, although the job runs on until the head gives up as well.
    "a host never reaches the head": Fault(
        (cut(3),),
        (wait(70), expect(("running", 101, UNHEARD)), wait(25)),
        {group: lost(task, SILENT) for group, task in THIRD.items()}, policy=", lease: 600s",
    ),
    "a host that the job can do without never reaches the head": Fault(
        (cut(2),), (wait(100), expect(("running", 101, UNHEARD)), succeed), {SPARE: SUCCEEDED}, policy=", lease: 600s"
    ),
    "the client is killed when only the head keeps the start and the lease is long": Fault(
        (wait(5),), (wait(90),),
        {group: lost(task, SILENT) for group, task in OTHERS.items()}, kept=("node1",), policy=", lease: 600s",
    ),
    # The guard that is started again does not know that the host had connected.
    "the guard of the head is killed while a host is cut off for less than the lease": Fault(
        (wait(5), cut(3), kill_guards(1)), (wait(120), heal, wait(5), succeed), {ALL: SUCCEEDED},
        policy=", lease: 600s",
    ),
    "all hosts are cut off for longer than the lease": Fault(
        (wait(5), cut(2, 3), wait(10)),
        (wait(LEASE + 32), heal),
        {group: lost(task, SILENT) for group, task in OTHERS.items()},
    ),
    "a host cannot stop its tasks when the lease has passed": Fault(
        (wait(5), cut(2, 3), wait(10)),
        (silence_systemd(3), wait(LEASE + 32), systemd_answers(3), heal),
        {group: lost(task, SILENT) for group, task in OTHERS.items()},
    ),
    "a host is powered off": Fault(
        (wait(5), power_off(2), wait(10)),
        (wait(LEASE + 40), succeed),
        {SPARE: SUCCEEDED, EVERY_WORKER: lost("worker/1 on node2", SILENT)},
    ),
    "a host with a parameter server or a rank is powered off": Fault(
        (wait(5), power_off(3), wait(10)),
        (wait(LEASE + 40),),
        {group: lost(task, SILENT) for group, task in THIRD.items()},
    ),
    "a host is powered off and the tasks of the others fail": Fault(
        (wait(5), power_off(2), wait(2)),
        (the_others_fail, wait(LEASE + 40)),
        {EVERY_WORKER: ("failed", 100, "^worker/0 on node1 failed with exit code 1$")},
    ),
    "a host is rebooted and no client looks": Fault(
        (wait(5), power_off(2), wait(10), power_on(2)),
        (wait(LEASE + 40), succeed),
        {SPARE: SUCCEEDED, EVERY_WORKER: lost("worker/1 on node2", SILENT)},
        stopped={SPARE: STOPPED, EVERY_WORKER: lost("worker/1 on node2", REBOOTED)},
    ),
    "a host is rebooted and somebody looks": Fault(
        (wait(5), power_off(2), wait(10), power_on(2), a_client_looks, wait(2)),
        (succeed,),
        {SPARE: SUCCEEDED, EVERY_WORKER: lost("worker/1 on node2", REBOOTED)},
        stopped={SPARE: STOPPED, EVERY_WORKER: lost("worker/1 on node2", REBOOTED)},
    ),
    "what may still finish ends by itself": Fault(
        (wait(5), deciders_succeed, wait(20)), (succeed,), {DRAINED: SUCCEEDED}, SUCCEEDED, within=5
    ),
    "what may still finish does not": Fault(
        (wait(5), deciders_succeed, wait(20)), (), {DRAINED: SUCCEEDED}, SUCCEEDED, within=DRAIN - 20 + 5
    ),
    "the guard of the head is killed while the last tasks finish": Fault(
        (wait(5), deciders_succeed, wait(20), kill_guards(1)),
        (wait(10), kill_guards(1)), {DRAINED: SUCCEEDED}, SUCCEEDED, within=DRAIN - 30 + 5,
    ),
    # Clients cannot ask one of the deciders of multi_worker_mirrored while its host is off. They know
    # only that the job was stopped.
    "a host is powered off while the last tasks finish": Fault(
        (wait(5), deciders_succeed, wait(5), power_off(3)), (wait(LEASE + 50), power_on(3)), {DRAINED: SUCCEEDED},
        {SPARE: SUCCEEDED, EVERY_WORKER: STOPPED},
    ),
    # The other guards know that the job has succeeded. Clients know it again once they can ask the head's host.
    "the head is powered off while the last tasks finish": Fault(
        (wait(5), deciders_succeed, wait(5), power_off(1)),
        (wait(LEASE + 16), expect(("unknown", 101, "^no answer from node1$")), power_on(1)),
        {DRAINED: SUCCEEDED},
    ),
    "a task that decides fails": Fault((wait(5), first_fails), (), {ALL: FAILED}, stopped=FAILED),
    "a failed job is tried again": Fault(
        (wait(5), first_fails, wait(5)), (wait(20), succeed), {ALL: SUCCEEDED}, FAILED, ", max_attempts: 2"
    ),
    "a host takes minutes to prepare the next attempt": Fault(
        (wait(5), first_fails, wait(5)),
        (writes_slowly(2, 200), wait(210), succeed), {ALL: SUCCEEDED}, FAILED, ", max_attempts: 2",
    ),
    "the head takes long to keep the next attempt": Fault(
        (wait(5), first_fails, wait(5)),
        (keeps_slowly(1, 20), wait(40), succeed), {ALL: SUCCEEDED}, FAILED, ", max_attempts: 2",
    ),
    "a host takes long to keep the next attempt": Fault(
        (wait(5), first_fails, wait(5)),
        (keeps_slowly(2, 20), wait(40), succeed), {ALL: SUCCEEDED}, FAILED, ", max_attempts: 2",
    ),
    # It undoes that attempt, and the head tries again.
    "a host is cut off while it prepares the next attempt": Fault(
        (wait(5), first_fails, wait(5), writes_slowly(2, 20)),
        (wait(9), cut(2), wait(SHORT), heal, wait(5), expect(("starting", 101, r"exit code 7; attempt 2 in \d+ s$")),
         wait(35), succeed),
        {ALL: SUCCEEDED}, FAILED, ", max_attempts: 2",
    ),
    # The head hears about it only later.
    "a host is cut off as soon as it has kept the next attempt": Fault(
        (wait(5), first_fails, wait(5), when_kept(2, cut(2))),
        (wait(10 + SHORT), heal, wait(5), succeed), {ALL: SUCCEEDED}, FAILED, ", max_attempts: 2",
    ),
    # Its connection breaks, so it undoes the attempt.
    "a host is cut off before it keeps the next attempt": Fault(
        (wait(5), first_fails, wait(5), when_kept(1, cut(2))),
        (wait(10 + SHORT), heal, wait(LEASE + 35), succeed),
        {SPARE: SUCCEEDED, EVERY_WORKER: lost("worker/1 on node2", SILENT)}, FAILED, ", max_attempts: 2",
    ),
    "the guard of the head is killed before other hosts keep the next attempt": Fault(
        (wait(5), first_fails, wait(5), when_kept(1, kill_guards(1))),
        (wait(LEASE + 45),),
        {group: lost(task, SILENT) for group, task in OTHERS.items()}, FAILED, ", max_attempts: 2",
    ),
    "the guard of the head is killed before the next attempt": Fault(
        (wait(5), first_fails, wait(5), kill_guards(1)),
        (wait(20), succeed), {ALL: SUCCEEDED}, FAILED, ", max_attempts: 2",
    ),
    "the next attempt fails too": Fault(
        (wait(5), first_fails, wait(20)), (first_fails,), {ALL: FAILED}, STOPPED, ", max_attempts: 2"
    ),
    "the head is powered off before the next attempt": Fault(
        (wait(5), first_fails, wait(5), power_off(1)), (wait(LEASE + 16),), {ALL: CONTACT}, STOPPED, ", max_attempts: 2"
    ),
    "the head is rebooted before the next attempt": Fault(
        (wait(5), first_fails, wait(5), power_off(1), wait(2), power_on(1)),
        (expect(FAILED), wait(LEASE + 16)), {ALL: CONTACT}, FAILED, ", max_attempts: 2"
    ),
    "a host is powered off before the next attempt": Fault(
        (wait(5), first_fails, wait(5), power_off(2)),
        (wait(3 * LEASE),),
        {ALL: ("failed", 100, "exit code 7; attempt 2 could not be started: node2 does not answer")},
        FAILED, ", max_attempts: 2",
    ),
    "the guard of a host is gone before the next attempt": Fault(
        (wait(5), first_fails, wait(5), kill_guards(2, for_good=True)),
        (wait(3 * LEASE),),
        {ALL: ("failed", 100, "exit code 7; attempt 2 could not be started: node2 does not answer")},
        FAILED, ", max_attempts: 2",
    ),
    "a host is rebooted before the next attempt": Fault(
        (wait(5), first_fails, wait(5), power_off(2), wait(2), power_on(2)),
        (wait(3 * LEASE),),
        {ALL: ("failed", 100, "exit code 7; attempt 2 could not be started: node2 does not answer")},
        FAILED, ", max_attempts: 2",
    ),
    # The head learns only after the deadline that it could not start the attempt.
    "a host is cut off until no time is left for the next attempt": Fault(
        (wait(5), first_fails, wait(5), cut(2)),
        (wait(SHORT), heal),
        {ALL: ("failed", 100, "exit code 7; attempt 2 could not be started: node2 .*; the deadline leaves no time")},
        FAILED, ", deadline: 25s, max_attempts: 2", within=LEASE + 15,
    ),
    "a server does not listen in time": Fault(
        (deafen(3), wait(25)), (), {SERVED: DEAF}, stopped=DEAF, policy=", start_timeout: 20s"
    ),
    "a server does not listen in time and the job is tried again": Fault(
        (deafen(3), wait(25)),
        (expect(("starting", 101, r"start_timeout\); attempt 2 in \d s$")), listen(3), wait(12), succeed),
        {SERVED: SUCCEEDED}, stopped=DEAF, policy=", start_timeout: 20s, max_attempts: 2",
    ),
    "the guard of the head is killed before a job that was not up in time is tried again": Fault(
        (deafen(3), wait(25), kill_guards(1)),
        (wait(5), expect(("starting", 101, r"start_timeout\); attempt 2 in \d s$")), listen(3), wait(8), succeed),
        {SERVED: SUCCEEDED}, stopped=DEAF, policy=", start_timeout: 20s, max_attempts: 2",
    ),
    "the guard of the head is killed before a server is late": Fault(
        (deafen(3), wait(35), kill_guards(1), wait(5)),
        (wait(13),), {SERVED: DEAF}, policy=", start_timeout: 40s", within=10,
    ),
    "the guard of the head is killed while a server that has listened does not": Fault(
        (wait(30), deafen(3), kill_guards(1)), (wait(40), succeed), {SERVED: SUCCEEDED}, policy=", start_timeout: 20s"
    ),
    # Whether its tasks listen is not known: the lease decides.
    "a host is cut off when its servers should listen": Fault(
        (deafen(3), wait(8), cut(3), wait(22)),
        (listen(3), wait(2), heal, wait(8), succeed), {SERVED: SUCCEEDED}, policy=", start_timeout: 29s",
    ),
    # Its guard lets a task end for the grace period.
    "a host that is cut off ends its tasks slowly": Fault(
        (wait(5), cut(3), wait(10)),
        (wait(LEASE + 60), expect(("running", 101, UNHEARD)), wait(30), heal),
        {group: lost(task, SILENT) for group, task in THIRD.items()}, policy=", grace: 60s",
    ),
    "a task makes no step for too long": Fault(
        (sampled("steps"), wait(20), stand_still(2), wait(45), expect(("running", 101, STALLED))),
        (move, wait(15), expect(("running", 101, "^$")), succeed), {ALL: SUCCEEDED}, policy=", stall: 30s",
    ),
    "only the lines of tasks are known": Fault(
        (sampled("lines"), wait(20), stand_still(2), wait(45), expect(("running", 101, "^$")), stand_still(1, 3)),
        (wait(45), expect(("running", 101, NOTHING_PRINTED)), move, wait(15),
         expect(("running", 101, "^$")), succeed),
        {ALL: SUCCEEDED}, policy=", stall: 30s",
    ),
    "a task makes no step for too long and the job fails": Fault(
        (sampled("steps"), wait(20), stand_still(3), wait(55)),
        (), {ALL: ("failed", 100, STALLED)}, ("failed", 100, STALLED), ", stall: 30s, on_stall: fail, max_attempts: 2",
    ),
    "a task makes no step for too long and the job is tried again": Fault(
        (sampled("steps"), wait(20), stand_still(1), wait(50)),
        (expect(("starting", 101, STALLED[:-1] + r"; attempt 2 in \d s$")), move, wait(15), succeed),
        {ALL: SUCCEEDED}, ("failed", 100, STALLED),
        ", stall: 30s, on_stall: restart, max_attempts: 2, retry_exit_codes: [75]",
    ),
    "guards are killed while tasks make no step": Fault(
        (sampled("steps"), wait(20), stand_still(2), wait(20), kill_guards(1, 2), wait(35)),
        (), {ALL: ("failed", 100, STALLED)}, ("failed", 100, STALLED), ", stall: 30s, on_stall: fail",
    ),
    "the guard of the head is killed while the job has stalled": Fault(
        (sampled("steps"), wait(20), stand_still(2), wait(45), kill_guards(1)),
        (wait(8), expect(("running", 101, STALLED)), move, wait(15), expect(("running", 101, "^$")), succeed),
        {ALL: SUCCEEDED}, policy=", stall: 30s",
    ),
    # What its tasks do is not known: the lease decides.
    "a host is cut off while its tasks make no step": Fault(
        (sampled("steps"), wait(20), cut(2), stand_still(1, 2, 3), wait(LEASE - 5)),
        (expect(("running", 101, "^$")), heal, move, wait(15), succeed), {ALL: SUCCEEDED}, policy=", stall: 30s",
    ),
    "the deadline passes": Fault(
        (wait(5),), (wait(16),), {ALL: ("failed", 100, "with SIGTERM at its deadline$")}, policy=", deadline: 20s"
    ),
    "the deadline of the job passes in its second attempt": Fault(
        (wait(5), first_fails, wait(20)),
        (wait(20),),
        {ALL: ("failed", 100, "with SIGTERM at its deadline$")}, policy=", deadline: 40s, max_attempts: 3",
    ),
}  # fmt: skip


@cache
def make_job(strategy: str, policy: str, more: str = "") -> Job:
    """Return a job of this strategy, as `start` makes it from a job file."""
    policy += "" if "grace: " in policy else ", grace: 15s"
    policy += "" if "lease: " in policy else f", lease: {LEASE}s"
    with TemporaryDirectory() as folder:
        file = Path(folder, "job.yaml")
        file.write_text(
            f"name: digits\nstrategy: {strategy}\noutput: /srv/tfctl/digits\ncommand: python train.py\n{more}"
            f"roles: {ROLES[strategy]}\npolicy: {{max_restarts: 0, drain: {DRAIN}s{policy}}}\n"
        )
        layout = lay_out(load.load(file), INVENTORY, "job.yaml")
    sites = {host.name: Site(host.address or "", {}, None) for host in layout.hosts}
    return Job(layout, 1, "00000000", 0.0, assign(layout, sites))


def make_run(folder: Path, strategy: str, policy: str = "") -> Run:
    job = make_job(strategy, policy)
    rules = job.layout.rules
    leaving = tuple((task.role, task.index) for task in job.tasks if task.role in (*rules.leaves, "evaluator"))
    return Run(SimulatedHosts(folder, job), strategy, rules.deciders, leaving)


def outcome_of(table: Outcome | dict[tuple[str, ...], Outcome], strategy: str) -> Outcome:
    return table if isinstance(table, tuple) else next(row for group, row in table.items() if strategy in group)


def agrees(found: Outcome, expected: Outcome) -> None:
    assert found[:2] == expected[:2], found
    assert re.search(expected[2], found[2]), found


def next_start_is_clean(run: Run) -> None:
    """After a stop, nothing of the job keeps the next one from starting and succeeding."""
    for host in run.hosts.hosts.values():
        if host.name in run.hosts.network.off:
            host.power_on()
    heal(run)
    run.hosts.stop()
    assert not run.hosts.left()
    run.hosts.start()
    run.hosts.advance(2)
    assert run.hosts.outcome() == ("running", 101, "")
    run.succeed()
    run.hosts.until_over(15)
    agrees(run.hosts.outcome(), SUCCEEDED)
    assert not run.hosts.network.tracebacks


def each_fault(strategies_in_ci: int) -> pytest.MarkDecorator:
    """Run a test with each fault and each strategy that it concerns. CI runs so many of the strategies, a different
    choice for each fault; the extended tests run the others."""
    found = []
    for number, (name, fault) in enumerate(FAULTS.items()):
        strategies = [strategy for strategy in ALL if any(strategy in group for group in fault.outcomes)]
        for place, strategy in enumerate(strategies):
            marks = () if (place - number) % len(strategies) < strategies_in_ci else (pytest.mark.extended,)
            found.append(pytest.param(strategy, fault, id=f"{strategy}-{name.replace(' ', '-')}", marks=marks))
    return pytest.mark.parametrize(("strategy", "fault"), found)


def test_guards_see_no_difference_between_the_launchers_of_horovod() -> None:
    """Under mpirun too, each rank is a task of its own. So the cases with gloo hold for both."""
    of_gloo, of_mpi = (plan.record(make_job("horovod", "", f"launcher: {name}\n")) for name in ("gloo", "mpi"))
    assert of_gloo == of_mpi


@each_fault(strategies_in_ci=len(ALL))
def test_a_job_ends_as_its_strategy_says_after_a_fault(strategy: str, fault: Fault, tmp_path: Path) -> None:
    run = make_run(tmp_path, strategy, fault.policy)
    with run.hosts.running():
        run.hosts.start(fault.kept)
        for step in (*fault.before, *fault.after):
            step(run)
        run.hosts.until_over(fault.within, fault.left)
        agrees(run.hosts.outcome(), outcome_of(fault.outcomes, strategy))
        assert not run.hosts.network.tracebacks


@each_fault(strategies_in_ci=1)
def test_stop_during_a_fault_ends_the_job_everywhere(strategy: str, fault: Fault, tmp_path: Path) -> None:
    run = make_run(tmp_path, strategy, fault.policy)
    with run.hosts.running():
        run.hosts.start(fault.kept)
        for step in fault.before:
            step(run)
        run.hosts.stop()
        assert not [task for task in run.hosts.left() if "guard" not in task]
        heal(run)
        run.hosts.until_over(LEASE + 65)
        agrees(run.hosts.outcome(), outcome_of(fault.stopped, strategy))
        next_start_is_clean(run)


def test_guards_stop_what_a_client_has_not_stopped_but_give_it_time(tmp_path: Path) -> None:
    run = make_run(tmp_path, "tf1_ps", "")
    with run.hosts.running():
        run.hosts.start()
        run.hosts.advance(5)
        first, *others = run.hosts.hosts.values()
        first.mark(None)
        run.hosts.advance(3)
        assert all(host.alive and host.attempts[1].stopped is None for host in others)
        run.hosts.advance(GUARDS_S - 4)
        assert all(host.attempts[1].stopped is not None for host in others), "the first host ends its tasks in a second"
        run.hosts.advance(4)
        assert not any(host.alive for host in others)
        run.hosts.stop()
        run.hosts.until_over(30)
        assert run.hosts.outcome()[:2] == ("stopped", 103)


@pytest.mark.parametrize("strategy", ALL)
def test_stop_that_marks_the_job_as_the_next_attempt_begins_cancels_it(strategy: str, tmp_path: Path) -> None:
    """The head sees the mark only after it has begun to start the attempt."""
    run = make_run(tmp_path, strategy, ", max_attempts: 2")
    marked: dict[str, Any] = {}
    with run.hosts.running():
        run.hosts.start()
        run.hosts.advance(5)
        first_fails(run)
        run[1].at_reserve = lambda: marked.update(run.hosts.mark())
        while not marked:
            run.hosts.advance(0.5)
        run.hosts.advance(2)
        run.hosts.end_marked(marked)
        run.hosts.until_over(30)
        agrees(run.hosts.outcome(), FAILED)
        assert not run.hosts.network.tracebacks


@pytest.mark.parametrize("strategy", ALL)
def test_stop_that_does_not_reach_the_head_cancels_the_next_attempt(strategy: str, tmp_path: Path) -> None:
    """It deletes the restart files of the hosts that it reaches."""
    run = make_run(tmp_path, strategy, ", max_attempts: 2")
    with run.hosts.running():
        run.hosts.start()
        for step in (wait(5), first_fails, wait(5)):
            step(run)
        run.hosts.end_marked({name: host.mark(None) for name, host in run.hosts.hosts.items() if name != "node1"})
        run.hosts.until_over(30)
        assert [*run[1].attempts] == [1]
        agrees(run.hosts.outcome(), FAILED)
        assert not run.hosts.network.tracebacks


NOTIFIED = ", notify: {command: [/srv/tfctl/ended.sh]}"


def test_people_are_notified_once_although_the_guard_is_killed_meanwhile(tmp_path: Path) -> None:
    run = make_run(tmp_path, "horovod", NOTIFIED)
    with run.hosts.running():
        run.hosts.start()
        run.hosts.advance(5)
        run.succeed()
        run.hosts.advance(5)
        assert len(run[1].notified) == 1
        kill_guards(1)(run)
        run.hosts.until_over(10)
        assert len(run[1].notified) == 1
        agrees(run.hosts.outcome(), SUCCEEDED)
        assert not run.hosts.network.tracebacks


@pytest.mark.parametrize(
    ("policy", "states"), [("", ["stalled", "succeeded"]), (", on_stall: fail", ["failed"])], ids=["report", "fail"]
)
def test_people_are_notified_once_of_a_job_that_stalls(policy: str, states: list[str], tmp_path: Path) -> None:
    run = make_run(tmp_path, "horovod", NOTIFIED + ", stall: 30s" + policy)
    with run.hosts.running():
        run.hosts.start()
        for step in (sampled("steps"), wait(20), stand_still(2), wait(65), move, wait(20), succeed):
            step(run)
        run.hosts.until_over(40)
        told = [json.loads(one) for one in run[1].notified]
        assert [one["state"] for one in told] == states
        assert told[0]["reason"] == "worker/1 on node2 has made no step for 30 s (policy: stall)"
        assert not run.hosts.network.tracebacks


def test_people_are_told_the_cause_that_a_task_has_printed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "horovod", NOTIFIED)
    with run.hosts.running():
        run.hosts.start()
        run.hosts.advance(5)
        said = "ModuleNotFoundError: No module named 'einops'"
        run[2].printed["worker", 1] = (wire.Printed(run.hosts.network.now, said),)
        run[1].end(("worker", 0), 1)
        run.hosts.advance(0.1)
        run[2].end(("worker", 1), 1)
        run.hosts.until_over(30)
        [told] = run[1].notified
        assert json.loads(told)["why"]["sentence"].startswith("worker/1 on node2 cannot import einops")
        state = run.hosts.read()
        assert state.culprit and str(state.culprit) == "worker/0"
        assert state.why and state.why.kind == "missing module" and state.why.line == said
        assert not run.hosts.network.tracebacks


def test_people_are_told_which_task_has_failed_first_although_its_host_reports_it_later(tmp_path: Path) -> None:
    """The rank on the head fails because that on node2 has."""
    run = make_run(tmp_path, "horovod", NOTIFIED + ", clean: none")
    with run.hosts.running():
        run.hosts.start()
        run.hosts.advance(5)
        cut(2)(run)
        run[2].end(("worker", 1), 3)
        run.hosts.advance(0.1)
        run[1].end(("worker", 0), 1)
        run.hosts.advance(1.5)
        heal(run)
        run.hosts.advance(10)
        [told] = run[1].notified
        assert json.loads(told)["reason"] == "worker/1 on node2 failed with exit code 3"
        assert not run.hosts.network.tracebacks


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_the_task_that_failed_first_decides_about_another_attempt_although_clocks_differ(
    ahead: float, tmp_path: Path
) -> None:
    run = make_run(tmp_path, "horovod", ", max_attempts: 2, fail_exit_codes: [3]")
    run.hosts.network.ahead["node2"] = ahead
    with run.hosts.running():
        run.hosts.start()
        run.hosts.advance(5)
        first, second = (1, 2) if ahead < 0 else (2, 1)
        run[first].end(("worker", first - 1), 3)
        run.hosts.advance(0.5)
        run[second].end(("worker", second - 1), 1)
        run.hosts.until_over(15)
        assert [*run[1].attempts] == [1]
        assert not run.hosts.network.tracebacks


#: The policy of a job, and what happens until it has succeeded.
CLOCKS: dict[str, tuple[str, tuple[Step, ...]]] = {
    "ahead before a server is late": (
        ", start_timeout: 30s",
        (deafen(3), wait(20), set_clock(1, 3600), wait(2), listen(3), wait(3), succeed),
    ),
    "ahead in the second attempt": (
        ", deadline: 200s, max_attempts: 2",
        (wait(5), first_fails, wait(20), set_clock(1, 3600), wait(3), succeed),
    ),
    "back before the second attempt": (
        ", max_attempts: 2",
        (wait(5), first_fails, wait(5), set_clock(1, -3600), wait(15), succeed),
    ),
}


@pytest.mark.parametrize("when", CLOCKS)
def test_no_limit_passes_and_no_attempt_waits_because_the_clock_of_the_head_is_set(when: str, tmp_path: Path) -> None:
    policy, steps = CLOCKS[when]
    run = make_run(tmp_path, "multi_worker_mirrored", policy)
    with run.hosts.running():
        run.hosts.start()
        for step in steps:
            step(run)
        run.hosts.until_over(15)
        agrees(run.hosts.outcome(), SUCCEEDED)
        assert not run.hosts.network.tracebacks


def one_by_one(run: Run) -> None:
    """Stop each task by its name, as `tfctl stop JOB ROLE INDEX` does."""
    for host in run.hosts.hosts.values():
        tasks = host.alive
        attempt = host.mark(tasks)
        for task in tasks:
            host.end(task, 0, attempt)


STOPS: dict[str, tuple[tuple[Step, ...], Outcome]] = {
    "a host does not answer": ((wait(5), power_off(2), lambda run: run.hosts.stop()), STOPPED),
    "before the next attempt": ((wait(5), first_fails, wait(5), power_off(2), lambda run: run.hosts.stop()), FAILED),
    "its tasks one by one": ((wait(5), one_by_one), ("stopped", 103, "^its tasks were stopped one by one$")),
}


@pytest.mark.parametrize("how", STOPS)
def test_people_are_not_notified_of_a_job_that_a_user_has_stopped(how: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, "parameter_server", NOTIFIED + ", max_attempts: 2")
    steps, outcome = STOPS[how]
    with run.hosts.running():
        run.hosts.start()
        for step in steps:
            step(run)
        run.hosts.until_over(LEASE + 65)
        assert run[1].notified == []
        agrees(run.hosts.outcome(), outcome)
        assert not run.hosts.network.tracebacks


@pytest.mark.parametrize("seconds", [0, 1, 10])
def test_no_other_attempt_is_planned_when_the_guard_is_killed_after_the_job_has_failed(
    seconds: float, tmp_path: Path
) -> None:
    """``seconds``: how long after the guard has given up the next attempt. It then notifies people."""
    run = make_run(tmp_path, "horovod", NOTIFIED + ", max_attempts: 2")
    given_up = ("failed", 100, "exit code 7; attempt 2 could not be started: node2 does not answer")
    with run.hosts.running():
        run.hosts.start()
        for step in (wait(5), first_fails, wait(5), power_off(2)):
            step(run)
        while run.hosts.read().state != "failed":
            run.hosts.advance(0.5)
        run.hosts.advance(seconds)
        kill_guards(1)(run)
        run.hosts.until_over(LEASE + 65)
        [told] = run[1].notified
        assert EPOCH < json.loads(told)["finished"] <= EPOCH + run.hosts.network.now
        agrees(run.hosts.outcome(), given_up)
        assert not run.hosts.network.tracebacks
