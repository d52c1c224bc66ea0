"""The verb `start`: all or nothing on this host. The conversation is in tfctl.node.wire.

From the plan to `keep` the client's end of stdin, its silence, a signal or any error undoes what was made.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path
from typing import Any, Callable

from . import book, code, names, plan, reserve, states, wire
from .asuser import as_user, os_error
from .build import build
from .hello import hello, port_range
from .plan import Plan
from .reserve import Reservation
from .talk import Refused, Talk
from .world import World, clock_zero, host
from .world import run as run_to_end

_NONCE = re.compile(r"[0-9A-Za-z_-]{8,64}")
#: Seconds for one systemctl call that starts all units; for what has failed to be done with its ExecStopPost.
_LAUNCH, _SETTLE = 90.0, 5.0
#: Where systemctl does not wait for the execution of programs, it is waited for so many seconds.
_EXECUTED = 0.3
#: How long the mark of another host may take to be seen through a shared file system.
_SEEN = 2.0
#: systemd.exec(5): why systemd itself ended what it had forked.
_OWN_REASONS = {
    200: "its working directory cannot be entered", 203: "its program cannot be executed",
    214: "its scheduling policy cannot be set", 217: "its user does not exist",
    218: "its capabilities cannot be set", 226: "a directory that it may write to is missing",
    228: "its system call filter cannot be set",
}  # fmt: skip


def run(world: World, talk: Talk, request: dict[str, Any]) -> None:
    """The whole conversation. Raises Refused, Gone; then nothing is left."""
    Start(world, talk, request).converse()


class Start:
    """One client's start. ``_made`` is what would be undone, with the descriptor that holds its reservation."""

    def __init__(self, world: World, talk: Talk, request: dict[str, Any]) -> None:
        self._world, self._talk = world, talk
        self._job = plan.match(names.JOB, request.get("job"), "a job's name")
        digest = request.get("code")
        self._digest = "" if digest is None else plan.match(names.DIGEST, digest, "a digest")
        self._ports = port_range(request.get("ports"))
        self._resolve = plan.text_list(request.get("resolve", []), "resolve")
        self._stored = code.hold(world, self._digest) if self._digest else None
        self._plan: Plan | None = None
        self._made: tuple[Reservation, int] | None = None
        self._started = False
        self._mark: Path | None = None

    def converse(self) -> None:
        self._talk.send("hello", {**hello(self._world, self._job, self._ports, self._resolve), "code": self._has_code})
        steps = {
            "plan": self._reserve, "share": self._share, "go": self._go, "keep": self._keep, "undo": self._undone,
        }  # fmt: skip
        try:
            while True:
                kind, value = self._talk.receive()
                if kind not in steps:
                    raise Refused(2, f"{kind!r:.40} is nothing that a start is told")
                steps[kind](value)
                if kind == "keep":
                    return
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self._undo()

    @property
    def _has_code(self) -> bool:
        return not self._digest or self._stored is not None

    def _reserve(self, value: Any) -> None:
        self._require(not self._made, "a plan")
        incoming = None if self._has_code else self._receive()
        try:
            self._plan = plan.read(value, self._job, self._digest)
            self._made = build(self._world, self._plan, incoming)
            refused = None
        except Refused as error:
            refused = error
        except OSError as error:
            refused = os_error(error, "cannot write")
        finally:
            if incoming:
                incoming.close()
        self._talk.send("refused" if refused else "reserved", refused.error if refused else {})

    def _receive(self) -> code.Incoming:
        kind, size = self._talk.receive()
        self._require(kind == "code", kind)
        incoming = code.Incoming(self._world, self._digest)
        try:
            incoming.receive(self._talk, plan.number(size, "a size", 0, 1 << 40))
        except BaseException:
            incoming.close()
            raise
        return incoming

    def _share(self, value: Any) -> None:
        self._require(self._made and isinstance(value, dict) and len(value) == 1, "share")
        if not self._plan:
            return
        [(what, nonce)] = value.items()
        mark = self._world.at(self._plan.output) / f".tfctl-{plan.match(_NONCE, nonce, 'a nonce')}"
        deeds: dict[str, Callable[[], object]] = {
            "write": mark.touch,
            "find": lambda: _found(str(mark)),
            "remove": mark.unlink,
        }
        self._require(what in deeds, f"share {what}")
        self._mark = {"write": mark, "remove": None}.get(what, self._mark)
        try:
            self._talk.send("share", {"ok": as_user(self._world, deeds[what]) is not False})
        except Refused:
            self._talk.send("share", {"ok": False})

    def _go(self, _value: Any) -> None:
        self._require(self._made and not self._started, "go")
        if not self._plan:
            return
        self._started = True
        units, before = self._plan.units, time.time()
        if units:
            process = self._world.managing("start", "--", *units)
            assert process.stderr
            with process.stderr as said:
                words = self._talk.attend(process, said, _LAUNCH)
            if not self._world.sees_execution():
                time.sleep(_EXECUTED)
                words = words or "not seen"
            shown = self._settled(bool(words))
            failure = self._failure(shown)
            if failure:
                self._undo()
                self._talk.send("undone", wire.error(6, failure, "correct the job or the host, then start again"))
                return
            self._keep_began(shown, before)
        self._talk.send("started", {})

    def _keep(self, _value: Any) -> None:
        self._require(self._made and self._started, "keep")
        if self._made:
            reserve.keep(self._world, self._made[0])
            os.close(self._made[1])
            self._made = None
        self._talk.send("kept", {})

    def _undone(self, _value: Any) -> None:
        self._undo()
        self._talk.send("undone", {})

    def _undo(self) -> None:
        if self._mark:
            with contextlib.suppress(Refused):
                as_user(self._world, self._mark.unlink)
        if self._made:
            reservation, descriptor = self._made
            reserve.undo(self._world, reservation)
            os.close(descriptor)
        self._made, self._plan, self._started, self._mark = None, None, False, None

    def _settled(self, failed: bool) -> dict[str, dict[str, str]]:
        """What systemd says of the units; where a start has failed, once the end of that is done."""
        assert self._plan
        until = time.monotonic() + _SETTLE
        while True:
            shown = self._world.show(self._plan.units)
            ending = any(one["ActiveState"] == "deactivating" or one["SubState"] == "start" for one in shown.values())
            if not (failed and ending) or time.monotonic() > until:
                return shown
            time.sleep(0.05)

    def _failure(self, shown: dict[str, dict[str, str]]) -> str:
        """Why a task could not be started, or nothing. A program that ran is started, however soon it ended."""
        assert self._plan
        for task in self._plan.tasks:
            unit = names.unit(self._job, *task.task)
            ends = book.ends(self._world, self._job, self._plan.attempt, *task.task)
            why = _why(shown[unit], ends)
            if why:
                return f"{task.name} could not be started on {host()}: {why}{self._last_lines(unit)}"
        return ""

    def _keep_began(self, shown: dict[str, dict[str, str]], before: float) -> None:
        """When each task began; of one that ended well systemd knows no more, so that it began when it was told to."""
        assert self._plan
        zero, times = clock_zero(), {}
        for task in self._plan.tasks:
            micros = shown[names.unit(self._job, *task.task)].get("ExecMainStartTimestampMonotonic", "0")
            began = zero + int(micros) / 1e6 if micros.isdigit() else 0.0
            times["{}-{}".format(*task.task)] = round(max(began, before), 3)
        book.keep_began(self._world, self._job, self._plan.attempt, times)

    def _last_lines(self, unit: str) -> str:
        words = ["-q", "--no-pager", "-o", "cat", "-n", "5", "-u", unit, "--since=-2min"]
        try:
            lines = run_to_end([*self._world.journalctl, *words], 10.0).output.strip()
        except Refused:
            lines = ""
        return f"\n{lines}" if lines else ""

    def _require(self, fits: object, what: str) -> None:
        if not fits:
            raise Refused(2, f"{what} is not what comes next in a start")


def _why(shown: dict[str, str], ends: list[states.End]) -> str:
    """Why systemd could not execute a task, or nothing. Where it cannot, ExecStopPost too may write no line."""
    told = states.told_by_systemd(shown)
    for end in [*ends, *([told] if told else [])]:
        if end.refused:
            return _OWN_REASONS.get(end.exit_code or 0, f"EXIT_STATUS {end.exit_code} of systemd.exec(5)")
    if not ends and not told and shown.get("ActiveState") in ("failed", "inactive"):
        return f"systemd says: {shown.get('Result')}"
    return ""


def _found(mark: str) -> bool:
    until = time.monotonic() + _SEEN
    while True:
        try:
            # Opening asks the server; a look at the directory may be answered from a cache.
            os.close(os.open(mark, os.O_RDONLY | os.O_CLOEXEC))
            return True
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
