"""Hosts with a job and its guards, simulated in one process (simulated_network.py), and a client of them.

The guards are the real ones, from their first look at the job to their removal. So are the files that they read and
write, and what a client makes of the hosts' answers. Simulated are systemd, which restarts a guard after 2 s, the
tasks, and the node part: it answers the requests of guards as tfctl.node does, in the same messages, and keeps the
states of tasks in memory.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from simulated_network import EPOCH, Network, Process

from tfctl.cli.wait import exit_code
from tfctl.jobs import state
from tfctl.jobs.state import JobState
from tfctl.model import plan
from tfctl.model.job import Job
from tfctl.node import guards, jobstore, judge, names, statuses, wire
from tfctl.node.exits import Exit
from tfctl.node.guard.__main__ import watch
from tfctl.node.guard.credentials import Credentials
from tfctl.node.guard.host_access import HostAccess, RequestFailed
from tfctl.node.session import RequestRefused
from tfctl.node.system import System

#: How long (s) a task takes to end after SIGTERM.
TERM_S = 0.5
#: How long (s) a stop lets the guards mark the tasks of hosts that its client has not reached.
GUARDS_S = 10.0
#: How long (s) a stop waits for a task that not even SIGKILL ends.
HANG_S = 20.0
#: How long (s) the program of the policy's `notify` takes.
NOTIFY_S = 20.0
_RESTART_S = 2.0
_PORT = 2345


@dataclass
class Attempt:
    """An attempt on one host. ``marked``, ``overdue``: its tasks with these marks."""

    record: wire.Record
    tasks: dict[wire.TaskName, wire.TaskStatus]
    kept: bool = False
    stopped: float | None = None
    marked: set[wire.TaskName] = field(default_factory=set)
    overdue: set[wire.TaskName] = field(default_factory=set)


class SimulatedHost:
    """One host. ``guard``: its guard's process while the unit is installed."""

    def __init__(self, network: Network, name: str, folder: Path, job: str) -> None:
        self.network, self.name, self.job = network, name, job
        self.system = System(prefix=str(folder / name))
        self.root = Process(network, name)
        self.attempts: dict[int, Attempt] = {}
        self.restart_files: set[wire.TaskName] = set()
        self._deaf = self._hanging = self._systemd_is_silent = False
        #: How long (s) a start takes to write its files. It hears nobody meanwhile, and others wait for it.
        self.writes_for = 0.0
        #: What happens just before the host makes an attempt that a guard starts.
        self.at_reserve: Callable[[], object] = lambda: None
        #: How long (s) the host takes to keep an attempt that a guard starts.
        self.keep_for = 0.0
        self._writing = asyncio.Lock()
        #: What happens at the moment in which the host keeps an attempt that a guard starts.
        self.at_keep: Callable[[], object] = lambda: None
        self.guard: Process | None = None
        self.notified: list[str] = []
        #: What its tasks have printed, as far as a guard reads it.
        self.printed: dict[wire.TaskName, tuple[wire.Printed, ...]] = {}
        #: How the progress of its tasks is known, if it is, and since when (network time) they make none.
        self.progress: Literal["steps", "lines"] | None = None
        self.stands_since: float | None = None
        self._credentials = Credentials(name, "")
        self._gives_up = False

    # What a client, or a guard, has it do.

    def reserve(self, record: wire.Record) -> Attempt:
        """Write everything that an attempt needs. Nothing runs yet."""
        assert not self.alive, "a start is refused while tasks of the job run"
        folder = self.system.at(names.attempt_dir(self.job, record.attempt))
        self.system.at(names.guard_dir(self.job, record.attempt)).mkdir(parents=True)
        pending = {task.name: _status(task.name, "pending") for task in record.tasks if task.host == self.name}
        for name in ("stopped", *(names.task_key(*name) for name in pending)):
            (folder / name).mkdir()
        (folder / "job.json").write_text(json.dumps(wire.encode(record)))
        found = self.attempts[record.attempt] = Attempt(record, pending)
        return found

    def launch(self, attempt: Attempt) -> None:
        now = self._time()
        for name in attempt.tasks:
            attempt.tasks[name] = _status(name, "running", started=now)
        began = {names.task_key(*name): now for name in attempt.tasks}
        jobstore.set_began(self.system, self.job, attempt.record.attempt, began)
        self._listen()
        deadline = attempt.record.policy.deadline
        if deadline is not None:
            self.root.run(self._time_out(attempt, deadline))

    def keep(self, attempt: Attempt) -> None:
        attempt.kept = True
        self.restart_files = set(attempt.tasks)
        self._touch(attempt)

    def undo(self, attempt: Attempt) -> None:
        del self.attempts[attempt.record.attempt]
        shutil.rmtree(self.system.at(names.attempt_dir(self.job, attempt.record.attempt)))

    def install_guard(self, key: str, record: wire.Record, notify: wire.Notify | None = None) -> None:
        assert record.guard
        self.remove_guard()
        self._credentials = Credentials(self.name, key, notify if record.guard.head == self.name else None)
        self._gives_up = False
        self.network.listen_locally(self._socket, self.root, self._serve)
        self._listener = self.network.listen(self.root, _PORT) if record.guard.head == self.name else None
        self._start_guard()

    def remove_guard(self) -> None:
        self.network.close_locally(self._socket)
        self.network.close(self.name, _PORT)
        guard, self.guard = self.guard, None
        if guard is not None:
            guard.kill()

    def shown(self) -> wire.JobStatus | None:
        if not self.attempts:
            return None
        number = max(self.attempts)
        found, noted = self.attempts[number], guards.report(self.system, self.job, number)
        if noted is not None and not self.guarded:
            noted = noted._replace(retry_at=None)
        tasks = statuses.with_causes(self.system, found.record, tuple(found.tasks.values()))
        return wire.JobStatus(
            self.job, number, found.record.run, found.record, found.stopped, tasks, found.kept, noted, self.guarded,
        )  # fmt: skip

    def mark(
        self, tasks: Collection[wire.TaskName] | None, run: str | None = None, *, overdue: bool = False
    ) -> Attempt | None:
        """Mark unfinished tasks, or all of them and the job, as stopped. Return the attempt, if it has this run."""
        found = self.attempts.get(max(self.attempts, default=0))
        if found is None or run not in (None, found.record.run):
            return None
        number = found.record.attempt
        report = guards.report(self.system, self.job, number)
        unfinished = {name for name, one in found.tasks.items() if one.state in judge.ALIVE}
        (found.overdue if overdue else found.marked).update(unfinished & set(found.tasks if tasks is None else tasks))
        watched = self.guarded and found.stopped is None and not (report and report.over)
        if tasks is None and (unfinished or watched):
            found.stopped = found.stopped or self._time()
            jobstore.mark(self.system, self.job, number)
        self._touch(found)
        return found

    async def end_marked(
        self, attempt: Attempt, tasks: Collection[wire.TaskName] | None, *, everywhere: bool, by_client: bool = False
    ) -> list[str]:
        """End these tasks with SIGTERM. After all have ended, also remove what only a job that goes on needs. Return a
        sentence for each task that does not end."""
        if by_client and not everywhere and self.alive and self.guarded and attempt.stopped is not None:
            await asyncio.sleep(attempt.stopped + GUARDS_S - self._time())
        ending = [name for name in attempt.tasks if tasks is None or name in tasks]
        running = [name for name in ending if attempt.tasks[name].state == "running"]
        if running:
            await asyncio.sleep(HANG_S if self._hanging else TERM_S)
        left = running if self._hanging else []
        for name in ending:
            if name not in left:
                self.end(name, 0, attempt)
        async with self._writing:
            if tasks is None and attempt is self.attempts[max(self.attempts)]:
                self.restart_files.clear()
                if self.guard is not None and (everywhere or not self.guarded):
                    self.remove_guard()
        return [f"{names.task(*name)} on {self.name} does not end, not even by SIGKILL" for name in left]

    # What happens to it.

    def end(self, name: wire.TaskName, code: int, attempt: Attempt | None = None) -> None:
        """Let a task end by itself, or because of its mark."""
        attempt = attempt or self.attempts[max(self.attempts)]
        found = attempt.tasks[name]
        if found.state not in judge.ALIVE:
            return
        ended: dict[str, Any] = {"exit_code": code, "finished": self._time()}
        if name in attempt.marked:
            state: wire.TaskStateName = "stopped"
        elif name in attempt.overdue:
            state, ended = "failed", {**ended, "exit_code": None, "signal": "SIGTERM", "overdue": True}
        else:
            state = "failed" if code else "succeeded"
        attempt.tasks[name] = found._replace(state=state, **ended)
        self._touch(attempt)
        self._listen()

    def deafen(self, deaf: bool = True) -> None:
        """Let the tasks of this host no longer listen on their ports, as while they import TensorFlow."""
        self._deaf = deaf
        self._listen()

    def hang(self) -> None:
        """Let no signal end the tasks of this host, as in a file system that hangs."""
        self._hanging = True

    def silence_systemd(self, silent: bool = True) -> None:
        """Let systemctl get no answer, as on a host that is overloaded: the node part can neither look nor act."""
        self._systemd_is_silent = silent

    def kill_guard(self, *, for_good: bool = False) -> None:
        """``for_good``: systemd does not start it again."""
        assert self.guard
        self._gives_up = for_good
        self.guard.kill()

    def power_off(self) -> None:
        self.network.off.add(self.name)
        self.network.close_locally(self._socket)
        self.network.close(self.name, _PORT)
        for process in (self.root, self.guard):
            if process is not None:
                process.kill(silently=True)
        self.guard = None
        self.restart_files.clear()
        for attempt in self.attempts.values():
            for name, one in attempt.tasks.items():
                if one.state in judge.ALIVE and name not in attempt.marked:
                    attempt.tasks[name] = one._replace(state="lost", loss="reboot")
                elif one.state in judge.ALIVE:
                    attempt.tasks[name] = one._replace(state="stopped")

    def power_on(self) -> None:
        self.network.off.discard(self.name)
        self.root = Process(self.network, self.name)
        self.network.flush()

    @property
    def guarded(self) -> bool:
        """Whether a guard runs, or systemd is about to start it again."""
        return self.guard is not None and not (self.guard.dead and self._gives_up)

    @property
    def alive(self) -> list[wire.TaskName]:
        """Return the tasks whose units run."""
        found = (one for attempt in self.attempts.values() for one in attempt.tasks.values())
        return [one.name for one in found if one.state in judge.ALIVE and self.name not in self.network.off]

    # systemd and the node part.

    @property
    def _socket(self) -> str:
        return str(self.system.at(names.guard_socket_file(self.job)))

    def _time(self) -> float:
        return self.network.time(self.name)

    def _touch(self, attempt: Attempt) -> None:
        """Let a look at the times of files show that something has changed."""
        path = self.system.at(names.attempt_dir(self.job, attempt.record.attempt)) / "notes.jsonl"
        if path.parent.exists():
            with path.open("a") as file:
                file.write("\n")

    def _listen(self) -> None:
        """Write the kernel's table of sockets: each task that runs listens, unless it is deaf."""
        attempt = self.attempts[max(self.attempts)]
        running = [] if self._deaf else [one.name for one in attempt.tasks.values() if one.state == "running"]
        ports = [task.port for task in attempt.record.tasks if task.host == self.name and task.name in running]
        rows = [f"0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 0 880 0 1" for port in ports]
        table = self.system.at("/proc/net/tcp")
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text("\n".join(["sl local_address rem_address st", *rows]))

    async def _time_out(self, attempt: Attempt, deadline: float) -> None:
        await asyncio.sleep(deadline)
        attempt.overdue |= {name for name, one in attempt.tasks.items() if one.state in judge.ALIVE} - attempt.marked
        await self.end_marked(attempt, attempt.overdue, everywhere=False)

    def _start_guard(self) -> None:
        self.guard = Process(self.network, self.name)
        self.root.run(self._supervise(self.guard))

    async def _supervise(self, guard: Process) -> None:
        here = HostAccess(self.job, self.name, self.system)
        task = guard.run(watch(here, self._credentials, self.system, cast(Any, self._listener)))
        await asyncio.wait([task])
        if self.guard is not guard:
            return
        if not guard.dead:
            guard.kill()
            error = task.exception()
            if error is not None and not isinstance(error, RequestFailed):
                self.network.tracebacks.append(repr(error))
        await asyncio.sleep(_RESTART_S)
        if self.guard is guard and not self._gives_up:
            self._start_guard()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request of the guard, as the node part does."""

        def send(message: wire.NodeMessage) -> None:
            writer.write(wire.line(message))

        asked = wire.parse(await reader.readline())
        request = wire.decode(wire.REQUESTS[asked["verb"]], asked)
        try:
            if self._systemd_is_silent and isinstance(request, (wire.ShowRequest, wire.StopRequest, wire.StartRequest)):
                raise RequestRefused(Exit.FAILED, f"systemctl show failed on {self.name}: no answer")
            if isinstance(request, wire.ShowRequest):
                found = self.shown()
                send(wire.Shown((found,) if found else (), self._time()))
            elif isinstance(request, wire.StopRequest):
                await self._stop(request, send)
            elif isinstance(request, wire.StartRequest):
                await self._start(request, reader, send)
            elif isinstance(request, wire.NotifyRequest):
                self.notified.append(request.outcome)
                await asyncio.sleep(NOTIFY_S)
                send(wire.Notified())
            elif isinstance(request, wire.SampleRequest):
                await self._sample(reader, send)
            elif isinstance(request, wire.TraceRequest):
                send(self._traced(request))
            elif isinstance(request, wire.LeaveRequest):
                send(wire.Left())
                self.network.loop.call_later(0.1, self.remove_guard)
        except (RequestRefused, wire.Malformed) as error:
            send(wire.Error(int(Exit.USAGE), str(error)))
        writer.close()

    async def _sample(self, reader: asyncio.StreamReader, send: Any) -> None:
        if self.progress is None:
            raise RequestRefused(Exit.FAILED, "this host takes no samples")
        while not reader.at_eof():
            number = max(self.attempts)
            running = [one for one in self.attempts[number].tasks.values() if one.state == "running"]
            now = self.network.now
            moved = now if self.stands_since is None else self.stands_since
            step = int(moved) if self.progress == "steps" else None
            rows = [wire.TaskSample(*one.name, silent=now - moved, step=step) for one in running]
            send(wire.Sampled(number, wire.Sample(self._time(), None, None, tuple(rows))))
            await asyncio.sleep(wire.SAMPLE_S)

    def _traced(self, request: wire.TraceRequest) -> wire.Traced:
        number = max(self.attempts)
        names_of = self.attempts[number].tasks if request.tasks is None else request.tasks
        rows = [wire.TaskTrace(*name, 0, "gone", None, (), lines=self.printed.get(name, ())) for name in names_of]
        return wire.Traced(number, tuple(rows), time=self._time())

    async def _stop(self, request: wire.StopRequest, send: Any) -> None:
        assert request.run is not None, "a guard stops only the run that it knows"
        found = self.mark(request.tasks, request.run, overdue=bool(request.overdue))
        left = [] if found is None else await self.end_marked(found, request.tasks, everywhere=False)
        send(wire.Stopped(found.record.attempt if found else 0, (), tuple(left)))

    async def _start(self, request: wire.StartRequest, reader: asyncio.StreamReader, send: Any) -> None:
        before = self.attempts.get(request.restart_of or 0)
        send(wire.Hello(max(self.attempts, default=0), {}, {}, (), None, True, tuple(self.restart_files)))
        made: Attempt | None = None
        until = self.network.now + wire.SILENCE_S
        try:
            while line := await asyncio.wait_for(reader.readline(), max(0.01, until - self.network.now)):
                until = self.network.now + wire.SILENCE_S
                message = wire.client_message(line)
                if isinstance(message, wire.Rerun):
                    if before is None or not _is_same(before.record, message.record):
                        raise RequestRefused(Exit.USAGE, "the record is not that of the attempt that is to be repeated")
                    made = await self._reserve_alone(message.record)
                    send(wire.Reserved())
                elif made is None:
                    continue
                elif isinstance(message, wire.Go):
                    self.launch(made)
                    send(wire.Started())
                elif isinstance(message, wire.Keep):
                    await asyncio.sleep(self.keep_for)
                    self.keep(made)
                    made = None
                    self.at_keep()
                    send(wire.Kept())
                    return
        except TimeoutError:
            pass
        finally:
            if made is not None:
                self.undo(made)

    async def _reserve_alone(self, record: wire.Record) -> Attempt:
        """Reserve an attempt while no other start writes its files."""
        async with self._writing:
            if self.writes_for:
                await asyncio.sleep(self.writes_for)
            self.at_reserve()
            if record.attempt in self.attempts:
                raise RequestRefused(Exit.BUSY, f"another start of job {self.job} is in progress on {self.name}")
            return self.reserve(record)


class SimulatedHosts:
    """The hosts of a job, and a client that starts, reads and stops it."""

    def __init__(self, folder: Path, job: Job) -> None:
        self._job = job
        self.network = Network({host.address or "": host.name for host in job.layout.hosts})
        self.hosts = {host.name: SimulatedHost(self.network, host.name, folder, job.name) for host in job.layout.hosts}
        self._starts = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        with self.network.simulated():
            yield

    def start(self, kept: Collection[str] | None = None) -> wire.Record:
        """Start the job and leave. ``kept``: the hosts that the client tells to keep it before it is killed."""
        self._starts += 1
        number = 1 + max((number for host in self.hosts.values() for number in host.attempts), default=0)
        job = replace(
            self._job, attempt=number, run=f"{self._starts:08x}", started=EPOCH + self.network.now,
            guard_port=_PORT, guard_key=f"{self._starts:064x}",
        )  # fmt: skip
        record = plan.record(job)
        wanted = job.layout.policy.notify
        notify = None if wanted is None else wire.Notify(wanted.command or (), wanted.url)
        made = {name: host.reserve(record) for name, host in self.hosts.items()}
        for name, host in self.hosts.items():
            host.launch(made[name])
            host.install_guard(job.guard_key, record, notify)
        self.network.advance(0.1)
        for name, host in self.hosts.items():
            if kept is None or name in kept:
                host.keep(made[name])
            else:
                host.undo(made[name])
                host.remove_guard()
        return record

    def read(self) -> JobState:
        """Return what a client that knows only the inventory sees, and let it tell the head about reboots."""
        answers: dict[str, list[wire.JobStatus] | None] = {}
        for name, host in self.hosts.items():
            shown = host.shown()
            answers[name] = None if name in self.network.off else [shown] if shown else []
        [found] = state.jobs(answers)
        if found.rebooted and found.record.guard:
            head = self.hosts[found.record.guard.head]
            jobstore.note_rebooted(head.system, found.job, found.attempt, found.rebooted)
        return found

    def outcome(self) -> tuple[str, int, str]:
        """Return the state of the job, the exit code of `tfctl wait`, and the reason."""
        found = self.read()
        return found.state, int(exit_code(found)), found.reason

    def stop(self) -> None:
        """Run `tfctl stop`: all hosts that answer mark the tasks before any host ends one."""
        self.end_marked(self.mark())

    def mark(self) -> dict[str, Attempt | None]:
        """Do the first half of `tfctl stop`: have all hosts that answer mark their tasks."""
        return {name: host.mark(None) for name, host in self.hosts.items() if name not in self.network.off}

    def end_marked(self, marked: Mapping[str, Attempt | None]) -> None:
        """Do the second half of `tfctl stop`."""
        complete = len(marked) == len(self.hosts)
        self._together(
            self.hosts[name].end_marked(attempt, None, everywhere=complete, by_client=True)
            for name, attempt in marked.items()
            if attempt is not None
        )

    def end(self, tasks: Iterable[wire.TaskName], code: int = 0) -> None:
        """Let these tasks end by themselves, where they still run."""
        for host in self.hosts.values():
            for name in set(tasks) & set(host.alive):
                host.end(name, code)

    def advance(self, seconds: float) -> None:
        self.network.advance(seconds)

    def until_over(self, limit: float, but: str = "") -> None:
        """Wait at most ``limit`` seconds until no host that is on has a guard or a task. ``but``: a pattern of what may
        stay."""

        def left() -> list[str]:
            return [one for one in self.left() if not (but and re.search(but, one))]

        until = self.network.now + limit
        while left() and self.network.now < until:
            self.network.advance(1.0)
        assert not left(), left()

    def left(self) -> list[str]:
        """Return what runs: tasks and guards."""
        found = [f"{names.task(*task)} on {name}" for name, host in self.hosts.items() for task in host.alive]
        return found + [f"the guard of {name}" for name, host in self.hosts.items() if host.guarded]

    def _together(self, works: Iterable[Coroutine[Any, Any, object]]) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*works)

        self.network.loop.run_until_complete(all_of_them())


def _status(name: wire.TaskName, state: wire.TaskStateName, started: float | None = None) -> wire.TaskStatus:
    return wire.TaskStatus(*name, state, exit_code=None, signal=None, started=started, finished=None, restarts=0)


def _is_same(before: wire.Record, record: wire.Record) -> bool:
    """Return whether this is the record of the attempt before, but for what differs between attempts."""
    if before.guard is None or record.guard is None:
        return False
    same = before._replace(attempt=record.attempt, run=record.run, started=record.started)
    return record == same._replace(guard=before.guard._replace(number=record.guard.number))
