"""The client's side of a start: one conversation per host, advanced in lockstep (protocol: tfctl.node.wire).

If this process ends before `keep`, for any reason, each host undoes its part by itself. Undoing it from here is only
faster.
"""

from __future__ import annotations

import secrets
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tfctl.errors import PreflightFailed, TfctlError, Undone, Unreachable, together
from tfctl.jobs.code import Code
from tfctl.model.host import Host
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import NodeChannel, as_error, open_node
from tfctl.remote.ssh import Connection

#: Longest silence (s) while a host checks and unpacks a plan, and until it confirms `keep`.
_RESERVE_S, _KEEP_S = 600.0, 15.0
#: Exit status of a node program that lost its client and has undone its part.
_UNDONE = 1


class Talks:
    """The open conversations. ``hellos`` maps host name to hello; ``over`` means nothing is left to undo."""

    def __init__(
        self, fleet: Fleet, channels: Mapping[str, NodeChannel], hellos: Mapping[str, Any], unbegun: str
    ) -> None:
        self.hellos = hellos
        self.over = False
        self._unbegun = unbegun
        self._fleet = fleet
        self._channels = channels
        self._lost: set[str] = set()  # hosts that have failed to answer
        self._job: tuple[str, int] | None = None

    def reserve(
        self, plans: Mapping[Host, dict[str, Any]], code: Code | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Ask every host to reserve its plan, and return the refusals as (host, value).

        Without ``code``, each host rebuilds its plan from what it has kept (wire: again). The host that sorts first is
        asked alone, so that exactly one of two concurrent starts wins there.
        """
        by_name = {host.name: plan for host, plan in plans.items()}
        first, *rest = sorted(by_name)
        self._job = by_name[first]["job"], by_name[first]["attempt"]

        def ask(host: str, channel: NodeChannel) -> Any:
            channel.send("plan" if code else "again", by_name[host])
            if code and not self.hellos[host]["code"]:
                channel.send("code", len(code.data))
                channel.send_raw(code.data)
            return channel.receive(_RESERVE_S)

        for hosts in ([first], rest):
            answers, errors = self._each(hosts, ask)
            if errors:
                raise together(list(errors.values()))
            refusals = [(host, value) for host, (kind, value) in answers.items() if kind == "refused"]
            if refusals:
                return refusals
        return []

    def require_shared(self, output: str) -> None:
        """Raise PreflightFailed unless all hosts see the same output directory. One host writes a mark to test it."""
        if len(self._channels) == 1:
            return
        writer, blind = self._share(secrets.token_hex(8))
        if writer in blind:
            raise PreflightFailed(
                f"{writer}: no file can be made in {output}", "check whether it is full or mounted read-only"
            )
        if blind:
            raise PreflightFailed(
                f"{', '.join(blind)}: {output} is not the same directory as on {writer}, "
                "and several tasks of the job write there",
                "mount one shared directory there on all hosts, or choose an output below one",
            )

    def go(self) -> None:
        """Start every unit. On failure, make every host undo its part and raise Undone."""
        for channel in self._channels.values():
            with suppress(TfctlError):
                channel.send("go", {})
        answers, errors = self._each(self._channels, lambda _, channel: channel.receive(wire.SILENCE_S))
        failures = [as_error(host, value) for host, (kind, value) in answers.items() if kind != "started"]
        self._require_none([*failures, *errors.values()])

    def keep(self) -> list[TfctlError]:
        """Tell every host to keep its part: from here on the job runs by itself.

        Return the errors of hosts that may not have heard it. Raise Undone, as `go` does, if a host is already gone
        before any has been told.
        """
        gone = [host for host, channel in self._channels.items() if channel.ended]
        self._require_none(list(self._each(gone, lambda _, channel: channel.receive(_KEEP_S))[1].values()))
        with _undivided():
            self.over = True
            for channel in self._channels.values():
                with suppress(TfctlError):
                    channel.send("keep", {})
            _, errors = self._each(self._channels, lambda _, channel: channel.receive(_KEEP_S))
        return list(errors.values())

    def undo(self) -> str:
        """Make every host undo its part. Return a sentence about what is left."""
        begun = self._job is not None
        if not self.over:
            self.over = True
            silent = self._sweep(self._hang_up())
            if silent:
                return (
                    f"{', '.join(silent)} could not be told to undo its part, and will do so by itself after "
                    f"{wire.SILENCE_S:.0f} s of silence; every other host has undone its part"
                )
        return "nothing of the job runs: every host has undone its part" if begun else self._unbegun

    def _share(self, nonce: str) -> tuple[str, list[str]]:
        """Return the host that wrote the nonce to the output directory, and the hosts that cannot see it there."""
        writer = min(self._channels)

        def tell(what: str) -> Callable[[str, NodeChannel], bool]:
            def ask(_: str, channel: NodeChannel) -> bool:
                channel.send("share", {what: nonce})
                return bool(channel.receive(wire.SILENCE_S)[1]["ok"])

            return ask

        wrote, errors = self._each([writer], tell("write"))
        try:
            found, more = self._each(sorted(self._channels), tell("find")) if wrote else ({}, {})
            if errors or more:
                raise together([*errors.values(), *more.values()])
            return writer, [host for host, seen in found.items() if not seen]
        finally:
            self._each([writer], tell("remove"))

    def _require_none(self, failures: list[TfctlError]) -> None:
        if failures:
            cause = together(failures)
            raise Undone(f"{cause.message}\n{self.undo()}", cause.remedy)

    def _hang_up(self) -> list[str]:
        """Close every host's stdin, which it notices at any step. Return the hosts that have not undone their part."""
        for channel in self._channels.values():
            channel.close_stdin()

        def done(_: str, channel: NodeChannel) -> None:
            try:
                while True:
                    channel.receive(wire.SILENCE_S)
            except Unreachable:
                raise
            except TfctlError:
                if channel.wait() != _UNDONE:
                    raise

        _, errors = self._each([host for host in self._channels if host not in self._lost], done)
        return sorted({*errors, *self._lost})

    def _sweep(self, hosts: Sequence[str]) -> list[str]:
        """Undo, with a new node program, what a killed one left behind. Return the hosts that cannot be asked."""
        if not hosts or self._job is None:
            return []
        job, attempt = self._job

        def ask(connection: Connection) -> None:
            with open_node(connection, wire.request("stop", job=job, attempt=attempt, tasks=None)) as channel:
                channel.receive(wire.SILENCE_S)

        outcomes = self._fleet.map(ask, [host for host in self._fleet.hosts if host.name in hosts])
        return [outcome.host.name for outcome in outcomes if outcome.error is not None]

    def _each(
        self, hosts: Iterable[str], work: Callable[[str, NodeChannel], Any]
    ) -> tuple[dict[str, Any], dict[str, TfctlError]]:
        """Run ``work`` for all hosts at once. Return results and errors, each by host name."""
        answers: dict[str, Any] = {}
        errors: dict[str, TfctlError] = {}

        def once(host: str) -> None:
            try:
                answers[host] = work(host, self._channels[host])
            except Exception as error:  # an unexpected error must not pass for success
                what = f"{host}: this is a defect in tfctl: {type(error).__name__}: {error}"
                errors[host] = error if isinstance(error, TfctlError) else TfctlError(what)
                self._lost.add(host)

        threads = [threading.Thread(target=once, args=(host,), daemon=True) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return dict(sorted(answers.items())), dict(sorted(errors.items()))


@contextmanager
def conversations(
    fleet: Fleet,
    job: str,
    requests: Mapping[Host, bytes],
    say: Callable[[str], None] = lambda _: None,
    unbegun: str = "nothing of the job runs",
) -> Iterator[Talks]:
    """Open a conversation about starting ``job`` with each host, and yield once all have sent their hello.

    Leaving the context before `keep` undoes everything. On Ctrl-C, ``say`` is told the outcome: ``unbegun`` if no host
    had been sent a plan.
    """
    channels: dict[str, NodeChannel] = {}
    over = threading.Event()
    threading.Thread(target=_beat, args=(channels, over), daemon=True).start()
    try:
        talks = Talks(fleet, channels, _hellos(fleet, requests, channels), unbegun)
        try:
            yield talks
        except KeyboardInterrupt:
            say(f"{job} runs: tfctl stop {job} ends it" if talks.over else talks.undo())
            raise
        finally:
            talks.undo()
    finally:
        over.set()
        for channel in list(channels.values()):
            channel.close()


def _hellos(fleet: Fleet, requests: Mapping[Host, bytes], channels: dict[str, NodeChannel]) -> dict[str, Any]:
    """Return each host's hello. Adds each conversation to ``channels`` as it begins."""

    def hello(connection: Connection) -> Any:
        channel = channels[connection.host.name] = open_node(connection, requests[connection.host])
        return channel.receive(wire.SILENCE_S)[1]

    outcomes = fleet.map(hello, requests)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        raise together(errors)
    return {outcome.host.name: outcome.get() for outcome in outcomes}


def _beat(channels: Mapping[str, NodeChannel], over: threading.Event) -> None:
    while not over.wait(wire.BEAT_S):
        for channel in list(channels.values()):
            with suppress(TfctlError):
                channel.beat()


@contextmanager
def _undivided() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block: between two hosts it would leave half a job."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
