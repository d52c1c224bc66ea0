"""Fake hosts: each answers the protocol of the node part (tfctl.node.wire) in this process.

A fake host has no processes, units or files. What it is told to start counts as running until it is told to stop it. It
knows the requests that `scripts/bench scale` measures, and answers any other with an error. inspection.py answers
Ansible.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Generator
from functools import cache

from scripts.bench_scale.journal import Journal
from tfctl.node import wire
from tfctl.node.exits import Exit
from tfctl.provision import node_part

#: Yields messages, is sent the client's answers to them, and returns the last message.
Answer = Generator[wire.NodeMessage, wire.ClientMessage, wire.NodeMessage]
#: The digests of long records, or "", by run: all hosts of a job have the same record.
_DIGESTS: dict[str, str] = {}
#: The record that was decoded last, by its text: all hosts of a job have the same record.
_DECODED: dict[str, wire.Record] = {}
#: So many hosts of a job, the first ones, name all of them when they stop it, as in tfctl/node/verbs/stop.py.
_NAMING = 3


class FakeHost:
    """A host, with the latest attempt of each job. Its tasks print ``rate`` lines a second while they are followed."""

    def __init__(self, name: str, rate: float) -> None:
        self.name = name
        self.rate = rate
        self.jobs: dict[str, wire.JobStatus] = {}
        self._digests: dict[str, str] = {}
        #: Called whenever a job has changed.
        self.followers: set[Callable[[], None]] = set()

    def answer(self, request: wire.Request) -> Answer:
        """Return what answers a request. Raise ValueError for one that a fake host does not know."""
        if isinstance(request, wire.StartRequest):
            return self._start(request)
        if isinstance(request, wire.StopRequest):
            return self._stop(request)
        if isinstance(request, wire.ShowRequest):
            return _at_once(self.shown(request))
        if isinstance(request, wire.NodesRequest):
            return _at_once(self._node())
        if isinstance(request, wire.LogsRequest):
            return _at_once(self._logs(request))
        raise ValueError(f"a fake host does not answer {type(request).__name__}")

    def shown(self, request: wire.ShowRequest) -> wire.Shown:
        """Return the jobs that a request asks for."""
        wanted = (request.job,) if request.job else request.jobs
        jobs = [job for name, job in self.jobs.items() if wanted is None or name in wanted]
        if request.lines:
            jobs = [job._replace(tasks=tuple(task._replace(last_line_age=1.0) for task in job.tasks)) for job in jobs]
        digests = self._digests if request.brief else {}
        whole = tuple(job for job in jobs if not digests.get(job.job))
        short = tuple(job.brief(digests[job.job]) for job in jobs if digests.get(job.job))
        return wire.Shown(whole, time.time(), (), short)

    def units(self, job: str) -> dict[str, wire.TaskName]:
        """Return the units of the tasks here."""
        status = self.jobs[job]
        here = {task.name for task in status.tasks}
        return {task.unit: task.name for task in status.record.tasks if task.name in here}

    def _start(self, request: wire.StartRequest) -> Answer:
        known = self.jobs.get(request.job)
        message = yield wire.Hello(
            highest=known.attempt if known else 0, ports={}, names=dict.fromkeys(request.resolve), gpus=(),
            gpu_trouble=None, code=True, restartable=(), horovod={}, time=time.time(), stacks={}, packed=True,
        )  # fmt: skip
        if not isinstance(message, wire.Plan):
            raise ValueError("a fake host starts nothing but plans")
        plan, message = message, (yield wire.Reserved())
        while isinstance(message, wire.Share):
            message = yield wire.Shared(True)
        yield wire.Started()
        now = time.time()
        tasks = tuple(wire.TaskStatus(*task.name, "running", None, None, now, None, 0) for task in plan.tasks)
        guard = wire.GuardReport() if plan.record.guard else None
        guarded = True if plan.record.guard else None
        self._digests[plan.job] = _digest_of_long(plan.record)
        self._change(wire.JobStatus(plan.job, plan.attempt, plan.run, plan.record, None, tasks, True, guard, guarded))
        return wire.Kept()

    def _stop(self, request: wire.StopRequest) -> Answer:
        status = self.jobs.get(request.job)
        if request.hold:
            hosts = tuple(dict.fromkeys(task.host for task in status.record.tasks)) if status else ()
            yield wire.Marked(status.attempt if status else 0, hosts if self.name in hosts[:_NAMING] else ())
        if status is None:
            return wire.Stopped(0, (), ())
        ended = [task for task in status.tasks if task.state == "running"]
        now = time.time()
        tasks = tuple(task._replace(state="stopped", finished=now) for task in status.tasks)
        self._change(status._replace(stopped=now, tasks=tasks, guarded=False if status.guard else None))
        return wire.Stopped(status.attempt, tuple(task.name for task in ended), ())

    def _node(self) -> wire.Node:
        running = [
            wire.RunningTask(name, *task.name, task.state)
            for name, job in self.jobs.items()
            for task in job.tasks
            if task.state == "running"
        ]
        return wire.Node(
            protocol=wire.PROTOCOL, version=_version(), os="Debian GNU/Linux 12 (bookworm)",
            kernel="6.1.0-18-amd64", systemd=252, cpus=64, load=1.5, memory_mib=(515_000, 400_000), stacks={}, gpus=(),
            gpu_trouble=None, ports={}, tasks=tuple(running),
            disks=(wire.Disk("/var/lib/tfctl/jobs", 1, 400_000, 500_000),), stored_mib=1, time=time.time(),
        )  # fmt: skip

    def _logs(self, request: wire.LogsRequest) -> wire.NodeMessage:
        status = self.jobs.get(request.job)
        if status is None:
            return wire.Error(Exit.NOT_FOUND, f"{self.name} knows no attempt of job {request.job}")
        units = self.units(request.job)
        began = dict.fromkeys(units, status.tasks[0].started or 0.0)
        return wire.Logs(status.attempt, status.run, units, True, began, None, request.states, time.time())

    def _change(self, status: wire.JobStatus) -> None:
        self.jobs[status.job] = status
        for changed in tuple(self.followers):
            changed()


class FakeSession:
    """A session of a client with a host. ``send`` sends bytes to the client, and ``end`` ends the session."""

    def __init__(self, host: FakeHost, send: Callable[[bytes], None], end: Callable[[int], None]) -> None:
        self._host, self._send, self._end = host, send, end
        self._rest = b""
        self._request: wire.Request | None = None
        self._answer: Answer | None = None
        self._more = False
        self._journal: Journal | None = None
        self._timer: asyncio.TimerHandle | None = None

    def data(self, data: bytes) -> None:
        """Take what the client sends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                self._take(line)
            except ValueError as error:
                self._send(wire.line(wire.Error(Exit.FAILED, f"{self._host.name}: {error}")))
                self._end(1)

    def pause(self, paused: bool) -> None:
        """Hold back the lines of the journal while the client does not read them."""
        if self._journal is not None:
            self._journal.pause(paused)

    def close(self) -> None:
        """Forget a client that has left."""
        self._host.followers.discard(self._show)
        if self._timer is not None:
            self._timer.cancel()
        if self._journal is not None:
            self._journal.close()

    def _take(self, line: bytes) -> None:
        if self._answer is None:
            found = wire.parse(line)
            if found.get("verb") not in wire.REQUESTS:
                raise ValueError(f"there is no verb {found.get('verb')!r:.40}")
            self._request = wire.decode(wire.REQUESTS[found["verb"]], found)
            self._more = found.get("more") is True
            self._answer = self._host.answer(self._request)
            self._advance(lambda answer: next(answer))
        elif not isinstance(message := _message(line), wire.Beat):
            self._advance(lambda answer: answer.send(message))

    def _advance(self, step: Callable[[Answer], wire.NodeMessage]) -> None:
        assert self._answer is not None
        try:
            self._send(wire.line(step(self._answer)))
        except StopIteration as last:
            self._send(wire.line(last.value))
            self._after(last.value)

    def _after(self, last: wire.NodeMessage) -> None:
        """End the session after its last message, unless the client follows or may send another request."""
        if isinstance(self._request, wire.ShowRequest) and self._request.follow:
            self._host.followers.add(self._show)
            self._beat()
        elif isinstance(self._request, wire.LogsRequest) and self._request.follow and isinstance(last, wire.Logs):
            if self._request.states:
                self._show()
                self._host.followers.add(self._show)
                self._beat()
            collect = self._request.collect or 0.0
            self._journal = Journal(self._host.name, next(iter(last.units)), self._host.rate, collect, self._send)
            self._journal.follow(self._request.cursor)
        elif self._more and not isinstance(last, wire.Error):
            self._answer = None
        else:
            self._end(1 if isinstance(last, wire.Error) else 0)

    def _show(self) -> None:
        if isinstance(self._request, wire.LogsRequest):
            self._send(wire.line(self._host.shown(wire.ShowRequest(self._request.job, brief=True))))
        elif isinstance(self._request, wire.ShowRequest):
            self._send(wire.line(self._host.shown(self._request)))

    def _beat(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(wire.BEAT_S, self._beat)
        self._send(wire.line(wire.Beat()))


def _message(line: bytes) -> wire.ClientMessage:
    """Decode a message. A record is decoded only once: real hosts do it at the same time, not one after the other."""
    if not line.startswith(b'{"plan":'):
        return wire.client_message(line)
    fields = wire.parse(line)["plan"]
    record = _DECODED.get(fields["record"])
    if record is None:
        message = wire.client_message(line)
        assert isinstance(message, wire.Plan)
        _DECODED.clear()
        _DECODED[fields["record"]] = message.record
        return message
    small = wire.encode(record._replace(tasks=(), deciders=(), guard=None))
    return wire.decode(wire.Plan, {**fields, "record": small})._replace(record=record)


def _digest_of_long(record: wire.Record) -> str:
    """Return what names the record in brief answers, as on a real host: "" if it is short."""
    if record.run not in _DIGESTS:
        data = wire.record_file(record)
        _DIGESTS[record.run] = hashlib.sha256(data).hexdigest() if len(data) > wire.LONG_RECORD else ""
    return _DIGESTS[record.run]


def _at_once(message: wire.NodeMessage) -> Answer:
    """Answer by one message."""
    return message
    yield  # a generator, like the other answers


@cache
def _version() -> str:
    """Return the version of this tfctl's node part, so that `nodes` has nothing to report."""
    return node_part.version()
