"""The verb `logs`: send a line that lists the units, then a line of JSON for each entry or for those that match `grep`.

This module works around four traps of journalctl. With a cursor, `-f` shows only ten lines unless `--no-tail` is
given. `--after-cursor` can lose an entry, so it uses the inclusive `--cursor` and the client drops the first entry.
`-o json` can need any amount of memory (node/journal_export.py). `-u` adds messages of PID 1, which a match on
_SYSTEMD_UNIT does not.

journald reports lines that it has dropped in messages of its own, which name the unit in OBJECT_SYSTEMD_UNIT.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import subprocess
import time

from .. import fields, following, jobstore, matching, names, wire
from ..exits import Exit
from ..matching import LINE_S, TooSlow
from ..session import NodeSession, RequestRefused
from ..system import System, host

#: How long (s) journald may take to write what tasks have printed. It can lag far behind if its disk is slow.
SYNC_S = 60.0
#: How long (s) to wait for the oldest entry of the journal. Reading from a damaged disk may never end.
_OLDEST_S = 5.0
#: The longest time (s) for which a client may have lines collected.
_COLLECT_S = 5.0
#: A pattern that takes longer for a line of so many characters is refused. Longer lines are left out: for them, an
#: ordinary pattern may take long too.
_LONG = 4096
#: After so many of them, no other is searched: a task may have logged thousands.
_SLOW_LINES = 5


def run(system: System, session: NodeSession, request: wire.LogsRequest) -> None:
    """Serve one request. Raises RequestRefused, Gone."""
    job = fields.job_name(request.job)
    wanted = None if request.tasks is None else fields.task_names(request.tasks)
    attempt = fields.optional_attempt(request.attempt) or jobstore.latest(system, job)
    record = jobstore.record(system, job, attempt) if attempt else None
    if record is None:
        raise RequestRefused(Exit.NOT_FOUND, f"{host()} has no attempt of job {job}", "tfctl list shows the jobs")
    tasks = [task for task in jobstore.tasks(system, job, attempt) if wanted is None or task in wanted]
    units = {names.unit(job, *task): task for task in tasks}
    words = command(system, record.run, list(units), request)
    patience = SYNC_S if request.patience is None else min(request.patience, SYNC_S)
    synced = request.follow or not units or is_synced(system, session, patience)
    times = jobstore.began(system, job, attempt)
    began = {unit: times[names.task_key(*task)] for unit, task in units.items() if names.task_key(*task) in times}
    oldest = _oldest(system) if units and request.cursor is None else None
    states = bool(request.follow and request.states and units)
    session.send(wire.Logs(attempt, record.run, units, synced, began, oldest, states or None, time.time()))
    if not units:
        return
    wanted_line = None if request.grep is None else _wanted(request.grep, request.cursor is not None)
    show = wire.ShowRequest(job, attempt, later=True, brief=True) if states else None
    collect = max(0.0, min(request.collect or 0.0, _COLLECT_S))
    following.run(system, session, words, wanted_line, show, follow=request.follow, collect=collect)


def command(system: System, run: str, units: list[str], request: wire.LogsRequest) -> list[str]:
    """Return the journalctl command line for a request. Raises RequestRefused."""
    words = [
        *system.journalctl,
        "-q",
        "--no-pager",
        "--all",
        "-o",
        "export",
        "--output-fields=" + ",".join(wire.JOURNAL_FIELDS),
    ]
    if request.follow:
        words.append("-f")
    if request.cursor is not None:
        words.append(f"--cursor={_cursor(request.cursor)}")
    elif request.since is not None:  # journalctl accepts only one of the two
        words.append(f"--since=@{request.since:.6f}")
    if request.until is not None:
        words.append(f"--until=@{request.until:.6f}")
    if request.tail is not None and request.cursor is None:
        words.append(f"--lines={fields.number(request.tail, 'a number of lines', 0, 10**9)}")
    elif request.follow:
        words.append("--no-tail")
    dropped = ["_TRANSPORT=driver", f"MESSAGE_ID={wire.DROPPED}", *(f"OBJECT_SYSTEMD_UNIT={unit}" for unit in units)]
    return [*words, f"TFCTL_RUN={run}", *(f"_SYSTEMD_UNIT={unit}" for unit in units), "+", *dropped]


def is_synced(system: System, session: NodeSession, limit: float = SYNC_S) -> bool:
    """Have journald write the output of tasks that is still queued. Return whether it confirmed that within ``limit``
    seconds. Send beats meanwhile. Raises Gone."""
    try:
        process = subprocess.Popen([*system.journalctl, "--sync"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except OSError:
        return False
    until = time.monotonic() + limit
    try:
        while (left := until - time.monotonic()) > 0:
            try:
                return process.wait(min(left, wire.BEAT_S)) == 0
            except subprocess.TimeoutExpired:
                session.send(wire.Beat())
        return False
    finally:
        process.kill()
        process.wait(5)


def _oldest(system: System) -> float | None:
    """Return the time of the oldest entry in the system's journal, or None if it has none or cannot be read."""
    words = [*system.journalctl, "-q", "--no-pager", "--system", "-o", "json", "--output-fields=_TRANSPORT"]
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError:
        return None
    assert process.stdout
    with process.stdout:
        ready, _, _ = select.select([process.stdout], [], [], _OLDEST_S)
        first = process.stdout.readline() if ready else b""
    process.kill()  # journalctl would print the whole journal
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    try:
        return wire.journal_entry(first).time
    except wire.Malformed:
        return None


def _wanted(text: str, resumed: bool) -> LineFilter | None:
    """Return the check of lines for a regular expression. Return None if this Python, which may be older than the
    client's, cannot compile it: the client checks every line again."""
    try:
        return LineFilter(re.compile(text), resumed)
    except (re.error, ValueError, OverflowError, RecursionError):
        return None


def _cursor(value: str) -> str:
    if not 0 < len(value) < 1024 or not value.isprintable():
        raise RequestRefused(Exit.USAGE, "invalid journal cursor")
    return value


class LineFilter:
    """Returns of each line of JSON in turn what to send: the line or b"". Only for the main thread.

    Some lines are sent whether they match or not: the pieces of a line, which the client joins, journald's messages
    about dropped lines and, if the client has ``resumed``, the first line.
    """

    def __init__(self, pattern: re.Pattern[str], resumed: bool) -> None:
        self._pattern = pattern
        self._resumed = resumed
        self._joined = wire.Joiner()
        self._slow = 0
        matching.prepare()

    def __call__(self, line: bytes) -> bytes:
        """Return the line, b"", or the line without its message if it takes longer than LINE_S to search that. Raises
        RequestRefused if it is a short one. The client searches only what has been searched here in this time."""
        entry = wire.journal_entry(line)
        is_sent = self._resumed or (entry.unit, entry.stream) in self._joined.pieces
        self._resumed = False
        if entry.dropped is not None or (whole := self._joined(entry)) is None:
            return line
        text = whole.searched
        try:
            if len(text) > _LONG and self._slow >= _SLOW_LINES:
                raise TooSlow
            return line if matching.search(self._pattern, text) or is_sent else b""
        except TooSlow:
            self._slow += 1
            if len(text) > _LONG:
                return json.dumps({**wire.parse(line), "MESSAGE": "", wire.UNSEARCHED: 1}).encode() + b"\n"
            what = f"--grep took more than {LINE_S:.0f} s to match a line of {len(whole.text)} characters on {host()}"
            raise RequestRefused(
                Exit.USAGE, what, "simplify --grep: a repeat within a repeat, as in (a+)+, is slow"
            ) from None
