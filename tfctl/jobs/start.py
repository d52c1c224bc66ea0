"""Start a job on all its hosts or on none: one connection and one exec a host, and its stdin the dead-man's switch.

hello → plan → reserved → go → started → keep, each step on all hosts before the next on any. Whatever ends this process
before `keep`, each host undoes its part by itself (tfctl.node.wire).
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tfctl.errors import BadFile, PreflightFailed, TfctlError, Undone, together
from tfctl.jobs.code import Code
from tfctl.jobs.stop import stop
from tfctl.model.host import Host, Site
from tfctl.model.job import Job, Layout
from tfctl.model.placement import assign
from tfctl.model.plan import plan
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import NodeChannel, as_error, open_node

if TYPE_CHECKING:
    from tfctl.remote.ssh import Connection

Say = Callable[[str], None]

#: Seconds: for a host's first word; to take, check and unpack a plan; to start its units; to undo them.
_HELLO_S, _RESERVE_S, _GO_S, _UNDO_S = 30.0, 600.0, 180.0, 45.0
#: For so long another start's reservation is waited out; a running job is not.
_PATIENCE_S = 10.0


def start(fleet: Fleet, layout: Layout, code: Code, say: Say) -> Job:
    """Run the job on the fleet's hosts. Raises the error of every host that refuses, after all have undone their part;
    Undone when units had been started; KeyboardInterrupt likewise, up to the first `keep`."""
    patience = time.monotonic() + _PATIENCE_S
    while True:
        with _conversations(fleet, layout, code) as talks:
            job = _place(layout, talks)
            refusals = talks.reserve({host: plan(job, host, code.digest) for host in layout.hosts}, code)
            if not refusals:
                talks.share(layout)
                talks.go()
                try:
                    talks.keep()
                except TfctlError as error:
                    raise _taken_back(fleet, layout, error) from None
                return job
        if any(not refusal.get("retry") for _, refusal in refusals) or time.monotonic() > patience:
            raise together([as_error(host, refusal) for host, refusal in refusals])
        say(f"{refusals[0][0]}: {refusals[0][1]['message']}; trying again")
        time.sleep(0.5)


def rehearse(fleet: Fleet, layout: Layout, code: Code) -> Job:
    """The job as `start` would place it now. The hosts are asked; nothing is written."""
    with _conversations(fleet, layout, code) as talks:
        return _place(layout, talks)


class _Talks:
    """A conversation with each host; ``hellos`` by the host's name."""

    def __init__(self, channels: Mapping[str, NodeChannel], hellos: Mapping[str, Any]) -> None:
        self.channels = channels
        self.hellos = hellos
        self.kept = False
        self._started = False

    def reserve(self, plans: Mapping[Host, dict[str, Any]], code: Code) -> list[tuple[str, dict[str, Any]]]:
        """The refusals. The host that sorts first is asked alone: of two starts one wins there."""
        first, *rest = sorted(plans, key=lambda host: host.name)
        refusals = self._reserve_on([first], plans, code)
        return refusals or self._reserve_on(rest, plans, code)

    def share(self, layout: Layout) -> None:
        """Where several tasks write, whether all hosts see one output directory. Raises PreflightFailed."""
        if len(self.channels) == 1 or not layout.shares_output:
            return
        writer, nonce = min(self.channels), secrets.token_hex(8)
        self._share([writer], "write", nonce)
        try:
            blind = self._share(sorted(self.channels), "find", nonce)
        finally:
            self._share([writer], "remove", nonce)
        if blind:
            raise PreflightFailed(
                f"{', '.join(blind)}: {layout.output} is not the directory that {writer} has by that name, "
                "and several tasks of the job write there",
                "mount one directory on all hosts there, or choose an output below one",
            )

    def go(self) -> None:
        """Start every unit. Raises Undone, when every host has undone its part."""
        self._started = True
        for channel in self.channels.values():
            channel.send("go", {})
        failures: list[TfctlError] = []
        for host, channel in self.channels.items():
            try:
                kind, value = channel.receive(_GO_S)
                if kind != "started":
                    failures.append(as_error(host, value))
            except TfctlError as error:
                failures.append(error)
        if failures:
            all_of_them = together(failures)
            raise Undone(
                f"{all_of_them.message}\nnothing of the job runs: every host undid its part", all_of_them.remedy
            )

    def keep(self) -> None:
        """From here on the job runs by itself. Raises TfctlError where a host may not have heard it."""
        self.kept = True
        for channel in self.channels.values():
            with suppress(TfctlError):
                channel.send("keep", {})
        errors = []
        for channel in self.channels.values():
            try:
                channel.receive(_HELLO_S)
            except TfctlError as error:
                errors.append(error)
        if errors:
            raise together(errors)

    def undo(self) -> None:
        """Every host undoes its part, and has done so; one that cannot be told does it within wire.SILENCE_S.

        Told by the end of its input, which it notices whatever it is at.
        """
        for channel in self.channels.values():
            channel.close_stdin()
        end = time.monotonic() + _UNDO_S
        for channel in self.channels.values():
            with suppress(TfctlError):
                while time.monotonic() < end:
                    channel.receive(max(0.1, end - time.monotonic()))

    def _reserve_on(
        self, hosts: Sequence[Host], plans: Mapping[Host, dict[str, Any]], code: Code
    ) -> list[tuple[str, dict[str, Any]]]:
        answers: dict[str, Any] = {}

        def ask(host: Host) -> None:
            channel = self.channels[host.name]
            try:
                channel.send("plan", plans[host])
                if not self.hellos[host.name]["code"]:
                    channel.send("code", len(code.data))
                    channel.send_raw(code.data)
                answers[host.name] = channel.receive(_RESERVE_S)
            except TfctlError as error:
                answers[host.name] = error

        threads = [threading.Thread(target=ask, args=(host,), daemon=True) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        errors = [answer for answer in answers.values() if isinstance(answer, TfctlError)]
        if errors:
            raise together(errors)
        return [(host, value) for host, (kind, value) in sorted(answers.items()) if kind == "refused"]

    def _share(self, hosts: Sequence[str], what: str, nonce: str) -> list[str]:
        """Those of the hosts that cannot."""
        for host in hosts:
            self.channels[host].send("share", {what: nonce})
        return [host for host in hosts if not self.channels[host].receive(_HELLO_S)[1]["ok"]]


@contextmanager
def _conversations(fleet: Fleet, layout: Layout, code: Code) -> Iterator[_Talks]:
    """A conversation with every host, past its hello. Leaving it before `keep` undoes all."""
    ports = {host: layout.ports or host.ports for host in layout.hosts}
    nameless = [host.name for host in layout.hosts if host.address is None]
    channels: dict[str, NodeChannel] = {}

    def hello(connection: Connection) -> Any:
        request = wire.request(
            "start", job=layout.name, code=code.digest, ports=ports[connection.host], resolve=nameless
        )
        channel = channels[connection.host.name] = open_node(connection, request)
        return channel.receive(_HELLO_S)[1]

    over = threading.Event()
    threading.Thread(target=_beat, args=(channels, over), daemon=True).start()
    try:
        outcomes = fleet.map(hello, layout.hosts)
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors:
            raise together(errors)
        talks = _Talks(channels, {outcome.host.name: outcome.get() for outcome in outcomes})
        try:
            yield talks
        finally:
            if not talks.kept:
                over.set()
                talks.undo()
    finally:
        over.set()
        for channel in channels.values():
            channel.close()


def _beat(channels: Mapping[str, NodeChannel], over: threading.Event) -> None:
    while not over.wait(wire.BEAT_S):
        for channel in list(channels.values()):
            with suppress(TfctlError):
                channel.beat()


def _taken_back(fleet: Fleet, layout: Layout, error: TfctlError) -> Undone:
    """A host that has not heard `keep` undoes its part, and no job goes on without a part."""
    try:
        stop(fleet, layout.name)
    except TfctlError as left:
        return Undone(f"{error.message}\nnot all of the job was stopped: {left.message}", f"tfctl stop {layout.name}")
    return Undone(f"{error.message}\nnothing of the job runs: all of it was stopped", error.remedy)


def _place(layout: Layout, talks: _Talks) -> Job:
    sites = {host.name: _site(host, talks.hellos) for host in layout.hosts}
    attempt = 1 + max(hello["highest"] for hello in talks.hellos.values())
    return Job(layout, attempt, secrets.token_hex(4), time.time(), assign(layout, sites))


def _site(host: Host, hellos: Mapping[str, Any]) -> Site:
    hello = hellos[host.name]
    resolved = (other["names"].get(host.name) for other in hellos.values())
    address = host.address or next((found for found in resolved if found and not found.startswith("127.")), None)
    if address is None:
        raise BadFile(f"{host.name}: the hosts cannot resolve this name", "set tfctl_address or ansible_host for it")
    free = tuple(gpu["uuid"] for gpu in hello["gpus"] if not gpu["holder"])
    owners = tuple(gpu["holder"] for gpu in hello["gpus"] if gpu["holder"])
    return Site(address, {int(port): who for port, who in hello["ports"].items()}, free, owners)
