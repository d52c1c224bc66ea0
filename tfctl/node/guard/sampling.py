"""Keep samples of the tasks of this host while the job runs. No error ends a guard: samples may be missing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from .. import names, wire
from ..samples import Store
from ..system import System
from .host_access import HostAccess, RequestFailed
from .stalls import Watcher

#: How long (s) after a failure it is tried again, and how long the node part may be silent.
_AGAIN_S = 60.0
#: How long (s) after the start of the guard: a job that ends at once needs no samples.
BEGIN_S = 3.0
_SILENCE_S = 6 * wire.SAMPLE_S


async def keep_sampling(here: HostAccess, system: System, watcher: Watcher | None = None) -> None:
    """Keep what the node part samples until this is cancelled. ``watcher``: takes each sample too."""
    await asyncio.sleep(BEGIN_S)
    while True:
        with suppress(RequestFailed, OSError):
            await _sample(here, system, watcher)
        await asyncio.sleep(_AGAIN_S)


async def _sample(here: HostAccess, system: System, watcher: Watcher | None) -> None:
    """Raises RequestFailed, OSError."""
    attempt, store = 0, None
    async for found in here.samples(_SILENCE_S):
        if store is None or found.attempt != attempt:
            attempt, store = found.attempt, Store(system.at(names.samples_dir(here.job, found.attempt)))
        if watcher is not None:
            watcher.add(found.attempt, found.sample)
        store.add(found.sample)
