"""Run a command beside tasks, on their hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from tfctl.errors import TfctlError
from tfctl.jobs.state import JobState, TaskState, not_in_inventory
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import Session, beating, open_session

#: Takes what a command of a task has written: to stdout (1) or stderr (2).
Take = Callable[[TaskState, int, bytes], object]

#: How long (s) to wait for the hosts to end their commands.
_END_S = 6.0


class Splitter:
    """Puts the pieces of one stream together to lines."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def add(self, data: bytes) -> list[str]:
        """Return the lines that end within this piece, without their newlines."""
        first, *others = data.split(b"\n")
        self._pieces.append(first)
        lines = []
        for piece in others:
            lines.append(self.rest())
            self._pieces.append(piece)
        return lines

    def rest(self) -> str:
        """Return the beginning of a line that has not ended, and forget it."""
        line = b"".join(self._pieces).decode(errors="replace")
        self._pieces.clear()
        return line


def execute(
    fleet: Fleet,
    state: JobState,
    tasks: Sequence[TaskState],
    words: Sequence[str],
    take: Take,
    *,
    environment: bool = True,
) -> dict[TaskState, wire.Exited | TfctlError]:
    """Run a command beside each of the tasks, at the same time, and return how each has ended, in the given order.

    ``take`` is called from several threads, one at a time. Without ``environment``, the command has only the stack of
    the job, and can write nowhere. All commands end with this process, and when ``take`` raises an exception.
    """
    results: dict[TaskState, wire.Exited | TfctlError] = {}
    broken: list[Exception] = []
    sessions: dict[str, Session] = {}
    hosts = {host.name: host for host in fleet.hosts}
    taking = threading.Lock()

    def run(task: TaskState) -> None:
        try:
            if task.host not in hosts:
                raise not_in_inventory(state, task.host)
            request = wire.ExecRequest(
                state.job, state.record.run, task.role, task.index, tuple(words), environment=environment
            )
            connection = fleet.connection(hosts[task.host], redial_failed=False)
            sessions[str(task)] = session = open_session(connection, request)
            results[task] = _receive(session, lambda stream, data: _locked(taking, take, task, stream, data))
        except TfctlError as error:
            results[task] = error
        except Exception as error:
            broken.append(error)

    threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
    try:
        with beating(sessions):
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive() and not broken:
                    thread.join(0.5)  # Ctrl-C does not end a wait without a limit that is just about to begin
    finally:
        _end(sessions, threads)
    if broken:
        raise broken[0]
    return {task: results[task] for task in tasks}


def exit_code(results: Mapping[TaskState, wire.Exited | TfctlError]) -> int:
    """Return the exit code for all commands: that of the first task whose command did not succeed, else 0.

    As in a shell, a signal counts as 128 and its number.
    """
    for result in results.values():
        if isinstance(result, TfctlError):
            return result.exit
        if code := _code(result):
            return code
    return 0


def _code(ended: wire.Exited) -> int:
    if ended.signal is None:
        return ended.status or 0
    import signal

    number = signal.Signals.__members__.get(ended.signal)
    return 128 + number if number else 1


def _receive(session: Session, take: Callable[[int, bytes], object]) -> wire.Exited:
    while True:
        message = session.expect((wire.Piece, wire.Exited), wire.SILENCE_S)
        if isinstance(message, wire.Exited):
            return message
        for data in session.payload(message.size, wire.SILENCE_S):
            take(message.position, data)


def _locked(lock: threading.Lock, take: Take, task: TaskState, stream: int, data: bytes) -> None:
    with lock:
        take(task, stream, data)


def _end(sessions: Mapping[str, Session], threads: Sequence[threading.Thread]) -> None:
    """Close the sessions, and wait until the hosts have ended their commands if they do so soon."""
    running = [session for session in list(sessions.values()) if not session.ended]
    for session in running:
        session.close_stdin()
    for thread in threads:
        if running and thread.ident is not None:
            thread.join(_END_S / len(threads))
    for session in list(sessions.values()):
        session.close()
