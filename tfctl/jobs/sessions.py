"""The client's side of a start: one session per host, advanced in lockstep (protocol: tfctl.node.wire).

If this process ends before `keep`, for any reason, each host undoes its part on its own. Undoing it from here is only
faster.
"""

from __future__ import annotations

import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, TypeVar

from tfctl.errors import PreflightFailed, TfctlError, Undone, Unreachable, together
from tfctl.jobs import clocks
from tfctl.jobs.code import CodeArchive
from tfctl.jobs.thread_pool import call_for_each
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import Session, as_error, beating, open_session
from tfctl.remote.transport import Connection
from tfctl.wording import Lines

T = TypeVar("T")

#: Exit status of a node program that lost its client and has undone its part.
_UNDONE = 1


class Sessions:
    """The open sessions of a start. ``hellos``: by host name. ``kept``: whether hosts were told to keep the job.
    ``unreached``: by host name, the peers to which hosts could not connect when they reserved their parts."""

    def __init__(
        self, fleet: Fleet, sessions: Mapping[str, Session], hellos: Mapping[str, wire.Hello], not_started: str
    ) -> None:
        self.hellos = hellos
        self.kept = False
        self.unreached: dict[str, tuple[wire.Unreached, ...]] = {}
        self._not_started = not_started
        self._fleet = fleet
        self._sessions = sessions
        self._lost: set[str] = set()  # hosts that have failed to answer
        self._job: wire.Record | None = None
        self._may_run = False  # whether a host has been told to start units
        self._left: str | None = None  # what `undo` returns, once it has begun

    def reserve(
        self, messages: Mapping[Host, wire.Plan | wire.Rerun], code: CodeArchive | None = None
    ) -> list[tuple[str, wire.Error]]:
        """Ask every host to reserve its part of the job. Return the refusals as (host, error).

        ``code`` is sent to each host that does not have it. The host that sorts first is asked alone, so that exactly
        one of two concurrent starts wins there.
        """
        by_name = {host.name: message for host, message in messages.items()}
        first, *rest = sorted(by_name)
        self._job = record = by_name[first].record
        packed = wire.packed(record) if any(self.hellos[host].packed for host in by_name) else ""
        lacking = not all(self.hellos[host].code for host in by_name)
        # In one piece, so that no heartbeat of another thread gets between them.
        sent = wire.line(wire.Code(len(code.data))) + code.data if code and lacking else b""

        def send(host: str, session: Session) -> None:
            if self.hellos[host].packed:
                session.send_raw(wire.line_with(by_name[host], packed))
            else:
                session.send(by_name[host])
            if sent and not self.hellos[host].code:
                session.send_raw(sent)

        def refusal(host: str, session: Session) -> wire.Error | None:
            answer = session.expect((wire.Reserved, wire.Refused), wire.RESERVE_S)
            if isinstance(answer, wire.Refused):
                return answer.error
            self.unreached[host] = answer.unreached
            return None

        for hosts in ([first], rest):
            answers = self._exchange(hosts, send, refusal)
            refusals = [(host, error) for host, error in answers.items() if error is not None]
            if refusals:
                return refusals
        return []

    def require_shared(self, output: str) -> None:
        """Raise PreflightFailed unless all hosts see the same output directory. One host writes a mark to test it."""
        if len(self._sessions) == 1:
            return
        writer, blind = self._share(secrets.token_hex(8))
        if writer in blind:
            raise PreflightFailed(
                f"{writer}: cannot create a file in {output}", "check whether it is full or mounted read-only"
            )
        if blind:
            raise PreflightFailed(
                f"{', '.join(blind)}: {output} is not the same directory as on {writer}, "
                "and several tasks of the job write there",
                "mount one shared directory there on all hosts, choose an output below one, or write `output: none` if "
                "the program saves elsewhere",
            )

    def go(self) -> None:
        """Start every unit. On failure, make every host undo its part and raise Undone."""
        self._may_run = True
        for session in self._sessions.values():
            with suppress(TfctlError):
                session.send(wire.Go())

        def ask(host: str, session: Session) -> TfctlError | None:
            answer = session.expect((wire.Started, wire.Undone), wire.SILENCE_S)
            return as_error(host, answer.error) if isinstance(answer, wire.Undone) else None

        answers, errors = self._each(self._sessions, ask)
        self._require_none([*filter(None, answers.values()), *errors.values()])

    def keep(self) -> list[TfctlError]:
        """Send `keep` to every host: from then on the job runs without this process.

        Return the errors of hosts that may not have received it. Raise Undone, as `go` does, if a session had already
        ended before `keep` was sent to any host. Raise a KeyboardInterrupt when all have answered, unless there are
        errors.
        """
        gone = [host for host, session in self._sessions.items() if session.ended]
        self._require_none(list(self._each(gone, _kept)[1].values()))
        with _undivided() as interruptions:
            self.kept = True
            for session in self._sessions.values():
                with suppress(TfctlError):
                    session.send(wire.Keep())
            _, errors = self._each(self._sessions, _kept)
        if interruptions and not errors:
            raise KeyboardInterrupt
        return list(errors.values())

    def undo(self) -> str:
        """Make every host undo its part, unless that has begun already. Return a sentence about what is left."""
        if self._left is None:
            # This remains if the next line is interrupted.
            self._left = f"each host undoes its part on its own, at most {wire.SILENCE_S:.0f} s after it loses contact"
            self._left = self._undo()
        return self._left if self._job else self._not_started

    def _undo(self) -> str:
        silent = self._sweep(self._hang_up())
        if not silent:
            return "no part of the job is running: every host has undone its part"
        units = "may have started units and " if self._may_run else ""
        return (
            f"{', '.join(silent)} {units}did not receive the order to undo its part; it does so by itself "
            f"after {wire.SILENCE_S:.0f} s of silence; every other host has undone its part"
        )

    def _share(self, nonce: str) -> tuple[str, list[str]]:
        """Return the host that wrote the nonce to the output directory, and the hosts that cannot see it there."""
        writer = min(self._sessions)

        def ask(hosts: Sequence[str], action: Literal["write", "find", "remove"]) -> dict[str, bool]:
            return self._exchange(
                hosts,
                lambda _, session: session.send(wire.Share(action, nonce)),
                lambda _, session: session.expect(wire.Shared, wire.SILENCE_S).ok,
            )

        try:
            ask([writer], "write")
            found = ask(sorted(self._sessions), "find")
            return writer, [host for host, seen in found.items() if not seen]
        finally:
            with suppress(TfctlError):
                ask([writer], "remove")

    def _require_none(self, failures: list[TfctlError]) -> None:
        if failures:
            cause = together(failures)
            raise Undone(Lines(cause.message, self.undo()), cause.remedy)

    def _hang_up(self) -> list[str]:
        """Close every host's stdin, which it notices at any step. Return the hosts that have not undone their part."""
        for session in self._sessions.values():
            session.close_stdin()

        def done(_: str, session: Session) -> None:
            try:
                while True:
                    session.receive(wire.SILENCE_S)
            except Unreachable:
                raise
            except TfctlError:
                if session.wait() != _UNDONE:
                    raise

        _, errors = self._each([host for host in self._sessions if host not in self._lost], done)
        return sorted({*errors, *self._lost})

    def _sweep(self, hosts: Sequence[str]) -> list[str]:
        """Undo, with a new node program, what a killed one left behind. Return the hosts that cannot be asked.

        Where nothing was left, somebody else may have started the same attempt meanwhile, as another run.
        """
        if not hosts or self._job is None:
            return []
        request = wire.StopRequest(self._job.job, self._job.attempt, run=self._job.run)

        def ask(connection: Connection) -> None:
            with open_session(connection, request) as session:
                session.expect(wire.Stopped, wire.SILENCE_S)

        outcomes = self._fleet.map(ask, [host for host in self._fleet.hosts if host.name in hosts])
        return [outcome.host.name for outcome in outcomes if outcome.error is not None]

    def _exchange(
        self, hosts: Sequence[str], send: Callable[[str, Session], None], answer: Callable[[str, Session], T]
    ) -> dict[str, T]:
        """Send to all hosts before the first is waited for. Return their answers, or raise all that failed.

        For what happens before a host is told to start units.
        """
        _, unsent = self._each(hosts, send)
        answers, unanswered = self._each([host for host in hosts if host not in unsent], answer)
        errors = [*unsent.values(), *unanswered.values()]
        if errors:
            raise together([_before_go(error, self._not_started) for error in errors])
        return answers

    def _each(
        self, hosts: Iterable[str], work: Callable[[str, Session], T]
    ) -> tuple[dict[str, T], dict[str, TfctlError]]:
        """Run ``work`` for all hosts. Return results and errors, each by host name."""
        answers: dict[str, T] = {}
        errors: dict[str, TfctlError] = {}

        def once(host: str) -> None:
            try:
                answers[host] = work(host, self._sessions[host])
            except Exception as error:  # an unexpected error must not pass for success
                what = f"{host}: this is a bug in tfctl: {type(error).__name__}: {error}"
                errors[host] = error if isinstance(error, TfctlError) else TfctlError(what)
                errors[host].hosts = (host,)
                self._lost.add(host)

        call_for_each(hosts, once)
        return dict(sorted(answers.items())), dict(sorted(errors.items()))


@contextmanager
def open_sessions(
    fleet: Fleet,
    job: str,
    requests: Mapping[Host, wire.StartRequest],
    say: Callable[[str], None] = lambda _: None,
    not_started: str = "nothing had been started",
) -> Iterator[Sessions]:
    """Open a session to start ``job`` with each host, and yield once all have sent their hello.

    Leaving the context before `keep` undoes everything. ``not_started`` says what is known before any unit is started.
    It is added to the errors of hosts that stop answering by then. On Ctrl-C, ``say`` gets the outcome, which is
    ``not_started`` if no host had been sent a plan.
    """
    by_host: dict[str, Session] = {}
    try:
        with beating(by_host):
            sessions = Sessions(fleet, by_host, _hellos(fleet, requests, by_host, not_started), not_started)
            try:
                yield sessions
            except KeyboardInterrupt:
                say(f"{job} runs: tfctl stop {job} ends it" if sessions.kept else sessions.undo())
                raise
            finally:
                if not sessions.kept:
                    sessions.undo()
    finally:
        for session in list(by_host.values()):
            session.close()


def _hellos(
    fleet: Fleet, requests: Mapping[Host, wire.StartRequest], sessions: dict[str, Session], not_started: str
) -> dict[str, wire.Hello]:
    """Return each host's hello. Add each session to ``sessions`` as it begins."""

    def hello(connection: Connection) -> wire.Hello:
        asked = time.time()
        try:
            session = sessions[connection.host.name] = open_session(connection, requests[connection.host])
            answer = session.expect(wire.Hello, wire.SILENCE_S)
        except Unreachable as error:
            raise _before_go(error, not_started) from None
        fleet.clock_offsets[connection.host.name] = clocks.offset(asked, answer.time, time.time())
        return answer

    outcomes = fleet.map(hello, requests)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        raise together(errors)
    return {outcome.host.name: outcome.get() for outcome in outcomes}


def _before_go(error: TfctlError, not_started: str) -> TfctlError:
    """Return the error of a host with what is known when it stops answering before it was told to start units."""
    return Unreachable(f"{error.message}; {not_started}", error.remedy) if isinstance(error, Unreachable) else error


def _kept(_: str, session: Session) -> None:
    session.expect(wire.Kept, wire.KEEP_S)


@contextmanager
def _undivided() -> Iterator[list[int]]:
    """Collect interruptions during the block in a list: between two hosts they would leave half a job."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came  # only the main thread receives signals
        return
    # SIGALRM: an interruption that waits for the end of an import (tfctl.cli.interrupts).
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    found = {number: signal.getsignal(number) for number in numbers}
    before = {number: handler for number, handler in found.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
