"""The verb `queue`: keep a place for a client that waits to start a job, until the client goes away.

/run/tfctl/queue/TIME-NONCE   a ticket, which the process of its client keeps locked; another one belongs to nobody

The tickets of a client are the same on all hosts. So any two clients find the same order on each host that both use,
and never wait for one another.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from pathlib import Path

from .. import fields, jobstore, names, wire
from ..exits import Exit
from ..session import NodeSession, RequestRefused
from ..system import System, caller, host

_DIRECTORY = f"{names.RUN_DIR}/queue"
#: Seconds between looks at the queue.
_POLL_S = 0.5


def run(system: System, session: NodeSession, request: wire.QueueRequest) -> None:
    """Serve one client until it goes away. Raises RequestRefused, Gone."""
    job = fields.job_name(request.job)
    ticket = request.ticket or wire.Ticket(round(time.time(), 6), secrets.token_hex(4))
    fields.match(names.RUN, ticket.nonce, "a nonce")
    path = system.at(_DIRECTORY) / _name(ticket)
    descriptor = _take(path, f"job {job} of {caller()}")
    try:
        _watch(session, path, ticket)
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _watch(session: NodeSession, own: Path, ticket: wire.Ticket) -> None:
    before: wire.Queued | None = None
    beat = 0.0
    while True:
        now = wire.Queued(ticket, tuple(_ahead(own)))
        if now != before:
            session.send(now)
        elif time.monotonic() > beat:
            session.send(wire.Beat())
        else:
            session.readable([], _POLL_S)
            continue
        before, beat = now, time.monotonic() + wire.BEAT_S


def _name(ticket: wire.Ticket) -> str:
    """Return a name that sorts by time: the seconds have ten digits until the year 2286."""
    return f"{ticket.time:018.6f}-{ticket.nonce}"


def _take(path: Path, owner: str) -> int:
    """Write a ticket, and return the descriptor that holds its lock. Raises RequestRefused."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, json.dumps({"owner": owner}).encode())
        os.link(temporary, path)
    except FileExistsError:
        os.close(descriptor)
        raise RequestRefused(Exit.USAGE, f"this place in the queue of {host()} is taken") from None
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        temporary.unlink()
    return descriptor


def _ahead(own: Path) -> list[str]:
    """Return the owners of the earlier tickets, the first one first. Remove tickets that belong to nobody."""
    found = []
    for name in sorted(jobstore.listing(own.parent)):
        if name >= own.name:
            break
        with contextlib.suppress(FileNotFoundError):
            if not name.startswith(".") and _is_held(own.with_name(name)):
                owner = jobstore.read_json(own.with_name(name)) or {}
                found.append(str(owner.get("owner", "another client")))
    return found


def _is_held(path: Path) -> bool:
    """Return whether the process of this ticket is alive. If not, remove the ticket. Raises FileNotFoundError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    path.unlink()
    return False
