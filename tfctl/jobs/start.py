"""Start a job on all its hosts or on none.

Each host gets one connection and one exec, whose stdin is the dead-man's switch. The protocol is
hello → plan → reserved → go → started → keep; every host finishes a step before any host begins the next.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tfctl.errors import BadFile, TfctlError, Undone, together
from tfctl.jobs.code import Code
from tfctl.jobs.stop import stop
from tfctl.jobs.talks import Talks, conversations
from tfctl.model.host import Host, Site
from tfctl.model.job import Job, Layout
from tfctl.model.placement import assign
from tfctl.model.plan import plans
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.node import as_error

Say = Callable[[str], None]

#: How long (s) to keep retrying after losing a race against another start.
_PATIENCE_S = 10.0


def start(fleet: Fleet, layout: Layout, code: Code, say: Say) -> Job:
    """Start the job on the fleet's hosts and return it.

    If any host refuses, raise the errors of all that refused, after every host has undone its part; raise Undone if
    units had already been started. A KeyboardInterrupt before the first `keep` also undoes everything.
    """
    patience = time.monotonic() + _PATIENCE_S
    while True:
        with conversations(fleet, layout.name, _requests(layout, code), say) as talks:
            job = _place(layout, talks)
            refusals = talks.reserve(plans(job, code.digest), code)
            if not refusals:
                _require_shared(layout, talks)
                talks.go()
                unsaid = talks.keep()
                if unsaid:
                    raise torn(fleet, job.name, unsaid)
                return job
        if any(not refusal.get("retry") for _, refusal in refusals) or time.monotonic() > patience:
            raise together([as_error(host, refusal) for host, refusal in refusals])
        say(f"{refusals[0][0]}: {refusals[0][1]['message']}; trying again")
        time.sleep(0.5)


def rehearse(fleet: Fleet, layout: Layout, code: Code) -> Job:
    """Return the job as `start` would place it now. Queries the hosts; writes nothing."""
    with conversations(fleet, layout.name, _requests(layout, code)) as talks:
        return _place(layout, talks)


def torn(fleet: Fleet, job: str, unsaid: Sequence[TfctlError]) -> Undone:
    """Stop the job because some hosts did not confirm `keep`, and return the error to raise."""
    with suppress(TfctlError):
        stop(fleet, job)
    return Undone(
        f"{together(unsaid).message}\nthe job was stopped on the other hosts; a host that was not told to keep its "
        f"part undoes it after {wire.SILENCE_S:.0f} s of silence",
        f"when it answers again, run `tfctl stop {job}` to end anything it kept",
    )


def _requests(layout: Layout, code: Code) -> dict[Host, bytes]:
    nameless = [host.name for host in layout.hosts if host.address is None]

    def request(host: Host) -> bytes:
        ports = layout.ports or host.ports
        return wire.request("start", job=layout.name, code=code.digest, ports=ports, resolve=nameless)

    return {host: request(host) for host in layout.hosts}


def _require_shared(layout: Layout, talks: Talks) -> None:
    if layout.shares_output:
        talks.require_shared(layout.output)


def _place(layout: Layout, talks: Talks) -> Job:
    sites = {host.name: _site(host, talks.hellos) for host in layout.hosts}
    attempt = 1 + max(hello["highest"] for hello in talks.hellos.values())
    return Job(layout, attempt, secrets.token_hex(4), time.time(), assign(layout, sites), secrets.token_hex(16))


def _site(host: Host, hellos: Mapping[str, Any]) -> Site:
    hello = hellos[host.name]
    resolved = (other["names"].get(host.name) for other in hellos.values())
    address = host.address or next((found for found in resolved if found and not found.startswith("127.")), None)
    if address is None:
        raise BadFile(f"{host.name}: the hosts cannot resolve this name", "set tfctl_address or ansible_host for it")
    free = tuple(gpu["uuid"] for gpu in hello["gpus"] if not gpu["holder"])
    owners = tuple(gpu["holder"] for gpu in hello["gpus"] if gpu["holder"])
    trouble = as_error(host.name, hello["gpu_trouble"]) if hello.get("gpu_trouble") else None
    return Site(address, {int(port): who for port, who in hello["ports"].items()}, free, owners, trouble)
