"""The verb `start`: start all of a plan's tasks on this host, or none. tfctl.node.wire describes the conversation.

Until the client sends `keep`, the end of stdin, silence, a signal or any error undoes everything that was made.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path
from typing import Any, Callable

from . import again, book, code, names, plan, reserve, wire
from .asuser import as_user, os_error
from .build import build
from .executed import settled, why
from .hello import hello, port_range
from .plan import Plan
from .reserve import Reservation
from .talk import Refused, Talk
from .world import World, clock_zero, host
from .world import run as run_to_end

_NONCE = re.compile(r"[0-9A-Za-z_-]{8,64}")
#: Timeout in seconds of the one systemctl call that starts all units.
_LAUNCH = 90.0
#: Seconds that another host's mark may take to appear on a shared file system.
_SEEN = 2.0


def run(world: World, talk: Talk, request: dict[str, Any]) -> None:
    """Hold the whole conversation. Raises Refused or Gone, and then leaves nothing behind."""
    Start(world, talk, request).converse()


class Start:
    """One client's start. ``_made`` is the reservation to undo, with the descriptor that holds its lock."""

    def __init__(self, world: World, talk: Talk, request: dict[str, Any]) -> None:
        self._world, self._talk = world, talk
        self._job = plan.match(names.JOB, request.get("job"), "a job's name")
        digest = request.get("code")
        self._digest = "" if digest is None else plan.match(names.DIGEST, digest, "a digest")
        self._ports = port_range(request.get("ports"))
        self._resolve = plan.text_list(request.get("resolve", []), "resolve")
        self._stored = code.hold(world, self._digest) if self._digest else None
        before = plan.attempt_wanted(request.get("again"))
        self._texts = again.texts(world, self._job, before) if before else None
        self._plan: Plan | None = None
        self._made: tuple[Reservation, int] | None = None
        self._started = False
        self._mark: Path | None = None

    def converse(self) -> None:
        told = {**hello(self._world, self._job, self._ports, self._resolve), "code": self._has_code}
        if self._texts is not None:
            told["again"] = [list(task) for task in self._texts]
        self._talk.send("hello", told)
        steps = {
            "plan": self._reserve, "again": self._again, "share": self._share, "go": self._go, "keep": self._keep,
            "undo": self._undone,
        }  # fmt: skip
        try:
            while True:
                kind, value = self._talk.receive()
                if kind not in steps:
                    raise Refused(2, f"{kind!r:.40} is not a message of a start")
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

    def _again(self, value: Any) -> None:
        """Make the plan here, so that the values of its variables never leave this host."""
        self._require(self._texts is not None and self._has_code, "again")
        self._reserve(again.plan_of(self._texts or {}, self._digest, value))

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
            shown = settled(self._world, units, bool(words))
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
            book.note(self._world, self._job, self._made[0].attempt, "start")
            again.drop(self._world, self._job)
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

    def _failure(self, shown: dict[str, dict[str, str]]) -> str:
        """Say why a task could not be started, or return "". A program that ran counts, however soon it ended."""
        assert self._plan
        for task in self._plan.tasks:
            unit = names.unit(self._job, *task.task)
            ends = book.ends(self._world, self._job, self._plan.attempt, *task.task)
            reason = why(shown[unit], ends)
            if reason:
                return f"{task.name} could not be started on {host()}: {reason}{self._last_lines(unit)}"
        return ""

    def _keep_began(self, shown: dict[str, dict[str, str]], before: float) -> None:
        """Record when each task began. systemd forgets a task that succeeded: for that one use the time of the call."""
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
            raise Refused(2, f"{what} is out of order in a start")


def _found(mark: str) -> bool:
    until = time.monotonic() + _SEEN
    while True:
        try:
            # Opening the file asks the server; listing the directory may be answered from a cache.
            os.close(os.open(mark, os.O_RDONLY | os.O_CLOEXEC))
            return True
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
