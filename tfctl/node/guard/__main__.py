"""The guard's program. systemd runs it as `guard run JOB`, with the key of the job as a credential
(tfctl.node.guards)."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .. import jobstore, wire
from ..system import System
from .credentials import Credentials
from .head import Head, Outcome
from .host_access import HostAccess, RequestFailed
from .member import LOOK_S, Member
from .sampling import keep_sampling
from .stalls import Watcher

#: How long the node part may be unable to answer at the beginning (s). systemd then starts the guard again.
_PATIENCE_S = 30.0
#: How long systemd may take to end a guard that has left (s).
_LEAVE_S = 30.0
#: How long to wait at the end until it is noted why tasks have failed (s).
_SETTLE_S = 10.0
#: The first descriptor that systemd passes (sd_listen_fds(3)).
_FIRST_SOCKET = 3


def main(words: Sequence[str], system: System = System()) -> int:  # noqa: B008  a value
    """Guard a job until it has ended. Return the exit status."""
    job = words[0]
    try:
        asyncio.run(_guard(job, system))
    except RequestFailed as failed:
        print(failed, file=sys.stderr)
        return 1
    return 0


async def _guard(job: str, system: System) -> None:
    credentials = wire.decode(Credentials, wire.parse(Path(os.environ["CREDENTIALS_DIRECTORY"], "key").read_bytes()))
    await watch(HostAccess(job, credentials.host, system), credentials, system, _listener())


async def watch(here: HostAccess, credentials: Credentials, system: System, listener: socket.socket | None) -> None:
    """Guard the job on this host until it has ended, then have this guard removed. ``listener``: on the head, the
    socket for the other guards. Raises RequestFailed."""
    seen = await _first_look(here)
    guard = seen.record.guard
    assert guard  # `show` fails without one
    key = bytes.fromhex(credentials.key)
    watcher = None if guard.stall is None else Watcher(guard.stall)
    if watcher is not None:
        watcher.read(system, here.job, seen.attempt)
    sampling = asyncio.ensure_future(keep_sampling(here, system, watcher))
    if credentials.host == guard.head:
        began = _began(here, system, guard.origin, seen.attempt)
        wanted = credentials.notify

        async def tell(record: wire.Record, outcome: Outcome) -> None:
            if wanted is not None:
                from .notify import notify  # urllib is needed only here

                await notify(here, wanted, record, outcome)

        await Head(here, key, seen, began, listener, tell, watcher).run()
    else:
        await Member(here, key, seen, watcher).run()
    sampling.cancel()
    await here.settle(_SETTLE_S)
    await here.leave()
    await asyncio.sleep(_LEAVE_S)


async def _first_look(here: HostAccess) -> wire.JobStatus:
    """Return the attempt once its start is complete. A start that is undone ends this process. Raises RequestFailed."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            seen = await here.show()
        except RequestFailed:
            if time.monotonic() > until:
                raise
            seen = None
        if seen is not None and seen.kept:
            return seen
        if seen is None and time.monotonic() > until:
            raise RequestFailed(f"{here.host} has no job {here.job}")
        await asyncio.sleep(LOOK_S)


def _began(here: HostAccess, system: System, origin: str, attempt: int) -> float:
    """Return when the first attempt with this origin began, by this host's clock."""
    first = time.time()
    for number in range(attempt, 0, -1):
        record = jobstore.record(system, here.job, number)
        if record is None or record.guard is None or record.guard.origin != origin:
            break
        first = min(first, here.began(number))
    return first


def _listener() -> socket.socket | None:
    """Return the socket that systemd holds for the guards of the other hosts."""
    if os.environ.get("LISTEN_FDS") != "1":
        return None
    listener = socket.socket(fileno=_FIRST_SOCKET)
    listener.setblocking(False)
    return listener
