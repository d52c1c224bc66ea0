"""Start the next attempt of a job on all of its hosts or on none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from .. import wire
from . import link
from .host_access import HostAccess, RequestFailed
from .member import LOOK_S
from .members import ORDER_S, Members


async def start(here: HostAccess, members: Members, record: wire.Record) -> str:
    """Start an attempt on all hosts of its record. Return why it cannot be started, or "".

    It goes on once this host, ``here``, has kept it. A host that does not confirm this may have kept it, and then
    reports it when its connection is back. Otherwise it counts as silent.
    """
    silent = members.disconnected()
    if silent:
        return f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer"

    async def order(
        hosts: Iterable[str], make: Callable[[int], link.Order], within: float | None = None
    ) -> Mapping[str, str]:
        return await members.order(hosts, lambda number, _: make(number), within)

    def prepare(number: int) -> link.Order:
        return link.PrepareOrder(number, record)

    hosts = sorted({task.host for task in record.tasks})
    trouble = await order(hosts[:1], prepare, wire.RESERVE_S + ORDER_S)
    trouble = trouble or await order(hosts[1:], prepare, wire.RESERVE_S + ORDER_S)
    trouble = trouble or await order(hosts, link.LaunchOrder)
    if not trouble and here.is_stopped(record.attempt - 1):  # meanwhile
        trouble = {here.host: "the job was stopped"}
    if not trouble:
        trouble = await order([here.host], link.KeepOrder)
        if trouble and await kept(here, record.run):
            trouble = {}
    if trouble:
        await order(hosts, link.AbortOrder)
        return "; ".join(trouble.values())
    await order([host for host in hosts if host != here.host], link.KeepOrder)
    return ""


async def kept(here: HostAccess, run: str) -> wire.JobStatus | None:
    """Return the attempt with this run once this host has kept it, or None if it has undone it.

    Until one of the two has happened, the other hosts cannot be told what to do. So this waits however long the node
    part takes.
    """
    while True:
        with suppress(RequestFailed):
            seen = await here.show()
            if seen is None or seen.run != run:
                return None
            if seen.kept:
                return seen
        await asyncio.sleep(LOOK_S)
