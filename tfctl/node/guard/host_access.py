"""This host, as its guard sees it: files that it may read, and requests that the node part serves as root.

The ends of tasks and the marks are files, so a look at their times shows whether anything has changed. Only then does
the guard ask the node part for the states of the tasks, because that costs a process and a call of systemctl.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from .. import causes, guards, jobstore, judge, names, sockets, wire
from ..system import System

#: Ask for the states at least this often (s), in case a change has left no trace in a file, as on a full disk.
_ANYWAY_S = 30.0
#: The same while a task is about to start. systemd gives it up without a trace if its last run has failed: it stays in
#: `auto-restart` for RestartSec=, which is 2 s, before it fails.
_STARTING_S = 2.0
#: How long (s) the node part may take for an answer or a beat.
_SILENCE_S = wire.SILENCE_S

#: For how long (s) tasks are measured when the job has stalled.
_STALL_S = 2.0
#: About how many bytes of stacks are kept then.
_STALL_BYTES = 1 << 20

M = TypeVar("M")


class RequestFailed(Exception):
    """The node part could not serve a request. The message is for people."""


class HostAccess:
    """This host and this job."""

    def __init__(self, job: str, host: str, system: System = System()) -> None:  # noqa: B008  a value
        self.job, self.host = job, host
        self._system = system
        self._seen: object = None
        self._asked, self._patience = 0.0, _ANYWAY_S
        self._explained: dict[wire.TaskName, tuple[str, int]] = {}
        self._explaining: asyncio.Task[None] | None = None
        self._prepared: _Session | None = None
        self._beating: asyncio.Task[None] | None = None

    # What has changed.

    def changed(self) -> bool:
        """Return whether something may have changed since the last `show`."""
        return self._signature() != self._seen or time.monotonic() - self._asked > self._patience

    def _signature(self) -> object:
        """Return the times and sizes of the files that say what has happened to the latest attempt."""
        attempt = jobstore.latest(self._system, self.job)
        folder = names.attempt_dir(self.job, attempt)
        with suppress(OSError):
            here = sorted(path.name for path in self._system.at(folder).iterdir())
            files = [
                f"{folder}/stopped",
                f"{folder}/notes.jsonl",
                names.rebooted_file(self.job, attempt),
                names.causes_file(self.job, attempt),
                *(f"{folder}/{name}/ends.jsonl" for name in here if "-" in name),
            ]
            return attempt, [self._stamp(path) for path in files]
        return attempt, None

    def _stamp(self, path: str) -> tuple[int, int] | None:
        try:
            found = self._system.at(path).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    async def show(self) -> wire.JobStatus | None:
        """Return the latest attempt of the job on this host. It has a guard. Raises RequestFailed."""
        seen, asked = self._signature(), time.monotonic()
        async with _Session(self._system, wire.ShowRequest(self.job)) as session:
            shown = await session.expect(wire.Shown)
        self._seen, self._asked = seen, asked
        found = shown.jobs[0] if shown.jobs else None
        starting = found is not None and any(task.state == "starting" for task in found.tasks)
        self._patience = _STARTING_S if starting else _ANYWAY_S
        if found is not None and found.record.guard is None:
            raise RequestFailed(f"attempt {found.attempt} of {self.job} was started without a guard")
        if found is not None and (self._explaining is None or self._explaining.done()):
            self._explaining = asyncio.ensure_future(self._explain(found))
        return found

    def began(self, attempt: int) -> float:
        """Return when the attempt began here, or the time now if that is not known."""
        return min(jobstore.began(self._system, self.job, attempt).values(), default=time.time())

    def rebooted(self, attempt: int) -> set[str]:
        """Return the hosts that were rebooted during the attempt, as far as a client has noticed it."""
        return jobstore.rebooted(self._system, self.job, attempt)

    def is_stopped(self, attempt: int) -> bool:
        """Return whether a user has stopped the attempt, as far as this host knows."""
        return jobstore.marked(self._system, self.job, attempt) is not None

    def listening(self, tasks: Iterable[wire.RecordedTask]) -> tuple[wire.TaskName, ...]:
        """Return the tasks of this host whose port has a listener."""
        ports = sockets.listening(self._system.at("/proc"))
        return tuple(task.name for task in tasks if task.host == self.host and task.port in ports)

    # Why tasks have failed.

    async def _explain(self, seen: wire.JobStatus) -> None:
        """Note why tasks have failed or were restarted, from what they have printed. A later `show` reports it."""
        due = {
            task.name: (seen.run, task.restarts)
            for task in seen.tasks
            if judge.is_explained(task) and self._explained.get(task.name) != (seen.run, task.restarts)
        }
        if not due:
            return
        with suppress(RequestFailed, OSError):
            traced = await self._trace(seen.run, tuple(due), 0.0)
            found = {task.name: task for task in seen.tasks}
            new = [
                wire.NotedCause(*task.name, found[task.name].restarts, cause)
                for task in traced.tasks
                if (cause := causes.noted(task.lines)) is not None
            ]
            others = guards.causes(self._system, self.job, seen.attempt)
            noted = {**others, **{one.name: one for one in new}}
            self._explained.update(due)
            if new:
                self._write(names.causes_file(self.job, seen.attempt), wire.NotedCauses(tuple(noted.values())))

    async def settle(self, within: float) -> None:
        """Wait until what is known about the failures is noted, ``within`` seconds at most."""
        if self._explaining is not None:
            await asyncio.wait([self._explaining], timeout=within)

    async def note_stall(self, run: str, attempt: int) -> None:
        """Note what the tasks of this host do, because the job has stalled. Raises RequestFailed."""
        traced = await self._trace(run, None, _STALL_S)
        found = wire.StallTrace(traced.time or time.time(), traced.tasks)
        with suppress(OSError):
            for threads in (None, 8, 1):  # so that reading it back is possible, however many threads there are
                tasks = tuple(task._replace(threads=task.threads[:threads]) for task in found.tasks)
                if self._write(names.stall_file(self.job, attempt), found._replace(tasks=tasks)) < _STALL_BYTES:
                    break

    async def _trace(self, run: str, tasks: tuple[wire.TaskName, ...] | None, seconds: float) -> wire.Traced:
        async with _Session(self._system, wire.TraceRequest(self.job, run, tasks, seconds, full=True)) as session:
            return await session.expect(wire.Traced, _SILENCE_S + seconds)

    def _write(self, path: str, found: object, mode: int = 0o600) -> int:
        """Write an object of the wire as JSON. Return its length in bytes. By default, only root may read it besides
        this guard: it may have lines of tasks. Raises OSError."""
        data = json.dumps(wire.encode(found)).encode()
        jobstore.write(self._system.at(path), data, mode)
        return len(data)

    # Orders.

    async def stop(self, request: wire.StopRequest) -> None:
        """End tasks of the job. Raises RequestFailed."""
        async with _Session(self._system, request) as session:
            stopped = await session.expect(wire.Stopped)
        if stopped.left:
            raise RequestFailed("; ".join(stopped.left))

    async def prepare(self, record: wire.Record) -> None:
        """Reserve the next attempt on this host. Raises RequestFailed."""
        await self.abort()
        request = wire.StartRequest(self.job, record.code or None, (1024, 1024), restart_of=record.attempt - 1)
        session = _Session(self._system, request)
        await session.open()
        self._prepared = session
        self._beating = asyncio.ensure_future(session.beat())  # the node part may be busy for minutes
        try:
            hello = await session.expect(wire.Hello)
            wanted = {task.name for task in record.tasks if task.host == self.host}
            if not wanted <= set(hello.restartable) or not hello.code:
                lost = f"the restart files or the code of attempt {record.attempt - 1}"
                raise RequestFailed(f"{self.host} no longer has {lost}")
            session.send(wire.Rerun(record))
            answer = await session.receive((wire.Reserved, wire.Refused), wire.RESERVE_S)
            if isinstance(answer, wire.Refused):
                raise RequestFailed(answer.error.message)
        except BaseException:
            if self._prepared is session:  # unless it was aborted meanwhile
                await self.abort()
            raise

    async def launch(self) -> None:
        """Start the units of the attempt that `prepare` has reserved. Raises RequestFailed."""
        if self._prepared is None:
            raise RequestFailed(f"{self.host} has no attempt to start")
        self._prepared.send(wire.Go())
        answer = await self._prepared.receive((wire.Started, wire.Undone), _SILENCE_S)
        if isinstance(answer, wire.Undone):
            await self.abort()
            raise RequestFailed(answer.error.message)

    async def keep(self) -> None:
        """Let these units run on. Raises RequestFailed."""
        if self._prepared is None:
            raise RequestFailed(f"{self.host} has nothing to keep")
        self._prepared.send(wire.Keep())
        try:
            await self._prepared.expect(wire.Kept, wire.KEEP_S)
        finally:
            await self.abort()  # a node part that is late still reads `keep` first

    async def abort(self) -> None:
        """End the session of an attempt that is prepared or being prepared, which undoes it unless it was kept."""
        if self._beating is not None:
            self._beating.cancel()
        if self._prepared is not None:
            self._prepared.close()
        self._beating = self._prepared = None

    async def leave(self) -> None:
        """Have root remove this guard: systemd ends this process soon after. Raises RequestFailed."""
        async with _Session(self._system, wire.LeaveRequest(self.job)) as session:
            await session.expect(wire.Left)

    async def samples(self, silence: float) -> AsyncIterator[wire.Sampled]:
        """Yield samples of the job's tasks here, one every wire.SAMPLE_S. Raises RequestFailed."""
        async with _Session(self._system, wire.SampleRequest(self.job)) as session:
            while True:
                yield await session.expect(wire.Sampled, silence)

    async def notify(self, outcome: str) -> str | None:
        """Run the policy's program for the end of the job. Return why it failed, or None. Raises RequestFailed."""
        async with _Session(self._system, wire.NotifyRequest(self.job, outcome)) as session:
            return (await session.expect(wire.Notified)).error

    # Notes.

    def note(self, attempt: int, deed: str, reason: str, tasks: Collection[wire.TaskName] | None = None) -> None:
        """Note for `events` what this guard has done. A full disk does not keep it from its work."""
        action = wire.UserAction(
            round(time.time(), 3), deed, names.GUARD_USER, None if tasks is None else tuple(tasks), reason
        )
        jobstore.append_action(self._system.at(names.guard_dir(self.job, attempt)) / "notes.jsonl", action)

    def report(self, attempt: int, found: wire.GuardReport) -> None:
        """Write what clients are to know about the attempt."""
        with suppress(OSError):
            self._write(f"{names.guard_dir(self.job, attempt)}/report.json", found, 0o644)


class _Session:
    """A session with the node part over the guard's local socket."""

    def __init__(self, system: System, request: wire.Request) -> None:
        self._path = str(system.at(names.guard_socket_file(request.job or "")))  # type: ignore[union-attr]
        self._request = request

    async def open(self) -> None:
        """Connect and send the request. Raises RequestFailed."""
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self._path, limit=wire.LINE_LIMIT)
        except OSError as error:
            raise RequestFailed(f"the node part does not answer: {error.strerror}") from None
        self._writer.write(wire.request(self._request))

    async def __aenter__(self) -> _Session:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def send(self, message: wire.ClientMessage) -> None:
        self._writer.write(wire.line(message))

    async def expect(self, kind: type[M], within: float = _SILENCE_S) -> M:
        """Return the next message other than a beat, which must be of this kind. Raises RequestFailed."""
        return await self.receive((kind,), within)  # type: ignore[no-any-return]

    async def receive(self, kinds: tuple[type, ...], within: float) -> Any:
        """Return the next message other than a beat, which must be of one of these kinds. Raises RequestFailed."""
        while True:
            try:
                line = await asyncio.wait_for(self._reader.readline(), within)
                message = wire.node_message(line)
            except (asyncio.TimeoutError, OSError, ValueError) as error:
                raise RequestFailed(f"the node part gave no answer: {error or 'a timeout'}") from None
            if isinstance(message, wire.Error):
                raise RequestFailed(message.message)
            if isinstance(message, kinds):
                return message
            if not isinstance(message, wire.Beat):
                raise RequestFailed(f"the node part answered {type(message).__name__.lower()}")

    async def beat(self) -> None:
        """Give signs of life until this is cancelled."""
        while True:
            await asyncio.sleep(wire.BEAT_S)
            self.send(wire.Beat())

    def close(self) -> None:
        self._writer.close()
