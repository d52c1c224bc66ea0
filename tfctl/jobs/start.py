"""Start a job on all its hosts or on none.

Each host gets one connection and one exec, whose stdin is the dead-man's switch. The protocol is
hello → plan → reserved → go → started → keep; every host finishes a step before any host begins the next.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from tfctl.errors import BadFile, PreflightFailed, TfctlError, Undone, together
from tfctl.jobs.code import CodeArchive
from tfctl.jobs.other_hosts import OtherHosts, Outrun
from tfctl.jobs.requirements import directories
from tfctl.jobs.sessions import Sessions, open_sessions
from tfctl.jobs.stop import stop
from tfctl.model import addresses, versions
from tfctl.model.assign import assign, guard_port, outgoing_ports, own_address
from tfctl.model.gpus import RESTART, missing_gpus
from tfctl.model.host import Host, Site
from tfctl.model.job import Job, Layout
from tfctl.model.plan import plans
from tfctl.node import wire
from tfctl.remote.fleet import Fleet
from tfctl.remote.session import as_error
from tfctl.wording import Lines, abbreviated, with_remedy

Say = Callable[[str], None]

#: How long (s) to keep retrying after losing a race against another start.
_RETRY_TIMEOUT_S = 60.0
#: The shortest and the longest pause (s) before a retry. Starts that pause equally long would meet again.
_PAUSES_S = (0.2, 1.0)
#: So many hosts look up the name of a host: if all did, the work would be quadratic in number.
_RESOLVERS = 3


def start(
    fleet: Fleet,
    layout: Layout,
    code: CodeArchive,
    say: Say,
    others: OtherHosts | None = None,
    patience: float = _RETRY_TIMEOUT_S,
    note: Callable[[Job], object] = lambda _: None,
) -> Job:
    """Start the job on the fleet's hosts and return it.

    With ``others``, raise Busy if the job is alive on one of them, and count its attempts there too. ``patience``: how
    long (s) to try again after losing a race against another start, and to wait until another one has ended. Raise
    Taken if other jobs hold what the job needs. ``note`` gets the job before any of its units is started.

    If any host refuses, raise the errors of all that refused, after every host has undone its part; raise Undone if
    units had already been started. A KeyboardInterrupt before the first `keep` also undoes everything.
    """
    until, random = time.monotonic() + patience, Random()
    draw: Random | None = None
    said = ""
    while True:
        try:
            return _start(fleet, layout, code, say, others, patience, note, draw)
        except Outrun as outrun:
            if time.monotonic() > until:
                raise
            if outrun.first != said:
                said = outrun.first
                say(f"{said}; trying again")
        time.sleep(random.uniform(*_PAUSES_S))
        draw = random


def preview(fleet: Fleet, layout: Layout, code: CodeArchive) -> Job:
    """Return the job as `start` would place it now. Queries the layout's hosts alone; writes nothing."""
    with open_sessions(fleet, layout.name, _requests(layout, code)) as sessions:
        return _place(layout, sessions)


def _start(
    fleet: Fleet,
    layout: Layout,
    code: CodeArchive,
    say: Say,
    others: OtherHosts | None,
    patience: float,
    note: Callable[[Job], object],
    draw: Random | None,
) -> Job:
    """Start the job once and return it. Raise Outrun after losing a race against another start, else as `start`."""
    with open_sessions(fleet, layout.name, _requests(layout, code), say) as sessions:
        job = _place(layout, sessions, others, draw)
        for host in dict.fromkeys(task.host for task in job.tasks if task.gpus):
            hello = sessions.hellos[host.name]
            if missing := missing_gpus(host, hello.gpu_cards, hello.missing_gpus):
                say(with_remedy(missing, RESTART))
        refusals = sessions.reserve(plans(job, code.digest), code)
        if refusals:
            errors = [as_error(host, refusal) for host, refusal in refusals]
            raise Outrun(errors) if all(refusal.retry for _, refusal in refusals) else together(errors)
        _require_reached(layout, sessions, say)
        _require_shared(layout, sessions)
        for remark in outgoing_ports(layout, {name: hello.outgoing for name, hello in sessions.hellos.items()}):
            say(remark)
        if others:
            others.require_alone(job.run, job.attempt, patience)
        note(job)
        sessions.go()
        unconfirmed = sessions.keep()
        if unconfirmed:
            raise stop_unconfirmed(fleet, job.name, job.run, unconfirmed)
        return job


def stop_unconfirmed(fleet: Fleet, job: str, run: str, unconfirmed: Sequence[TfctlError]) -> Undone:
    """Stop the job because some hosts did not confirm `keep`, and return the error to raise."""
    stopped = "the job was stopped on the other hosts"
    try:
        stop(fleet, job, run=run)
    except TfctlError as error:  # one that no host is named in says that every host has undone its part
        if not {host for each in unconfirmed for host in each.hosts}.issuperset(error.hosts):
            stopped = "not everything was stopped on the other hosts: " + error.message
    return Undone(
        Lines(
            together(unconfirmed).message,
            stopped,
            f"a host that did not receive `keep` undoes its part after {wire.SILENCE_S:.0f} s of silence",
        ),
        f"when it answers again, run `tfctl stop {job}` to end anything it kept",
    )


def _requests(layout: Layout, code: CodeArchive) -> dict[Host, wire.StartRequest]:
    resolve = _names_to_resolve(layout.hosts)
    return {
        host: wire.StartRequest(
            layout.name, code.digest, layout.ports or host.ports, resolve[host.name], guard_ports=host.ports
        )
        for host in layout.hosts
    }


def _names_to_resolve(hosts: Sequence[Host]) -> dict[str, tuple[str, ...]]:
    """Return the names that each host looks up: addresses that are names, and names of hosts without an address.

    In a small job, each host looks up all of them. In a large one, it looks up those among the next hosts: each name is
    looked up on `_RESOLVERS` hosts, and not on its own, where it may lead to a loopback address.
    """
    count = len(hosts)
    if count <= _RESOLVERS + 1:
        return dict.fromkeys((host.name for host in hosts), _names(hosts))
    return {
        host.name: _names([hosts[(number + more) % count] for more in range(1, _RESOLVERS + 1)])
        for number, host in enumerate(hosts)
    }


def _names(hosts: Iterable[Host]) -> tuple[str, ...]:
    """Return where the others reach these hosts, as far as it is a name. A local host without an address has none:
    `localhost` would be their own."""
    return tuple(
        host.address or host.name
        for host in hosts
        if (not host.is_local if host.address is None else addresses.parsed(host.address) is None)
    )


def _require_reached(layout: Layout, sessions: Sessions, say: Say) -> None:
    """Raise PreflightFailed if hosts cannot connect to each other, or say so if the tasks may never do that."""
    errors = unreached(sessions.unreached)
    if errors and not layout.strategy.independent:
        raise together(errors)
    for error in errors:
        say(with_remedy(error.message, error.remedy))


def unreached(found: Mapping[str, Sequence[wire.Unreached]]) -> list[PreflightFailed]:
    """Return an error for each host, and each reason, why others cannot connect to it. ``found``: by these others."""
    by: dict[wire.Unreached, list[str]] = {}
    for host, peers in sorted(found.items()):
        for peer in peers:
            by.setdefault(peer, []).append(host)
    errors = []
    for peer, hosts in sorted(by.items()):
        firewall = "" if peer.named else "; if it is right, let its firewall accept connections from them"
        remedy = f"set tfctl_address to an address at which the other hosts reach {peer.host}{firewall}"
        errors.append(PreflightFailed(f"{peer.host}: {abbreviated(hosts)} {peer.failure}", remedy))
    return errors


def _require_shared(layout: Layout, sessions: Sessions) -> None:
    if layout.shares_output:
        sessions.require_shared(layout.output)


def _place(layout: Layout, sessions: Sessions, others: OtherHosts | None = None, draw: Random | None = None) -> Job:
    """Return the job's next attempt. ``others``: the hosts that get no task."""
    if layout.strategy.needs_horovod:
        _require_horovod(layout, sessions.hellos)
    _require_same_tensorflow(layout, sessions.hellos)
    resolved = _resolved(sessions.hellos.values())
    alone = len(layout.hosts) == 1
    sites = {host.name: _site(host, sessions.hellos[host.name], resolved, alone) for host in layout.hosts}
    if not layout.tests_network:
        reached = {name: resolved.get(site.address, site.address) for name, site in sites.items()}
        machines = {name: hello.machine or "" for name, hello in sessions.hellos.items()}
        addresses.require_distinct(layout.hosts, reached, layout.ports, machines)
    tasks = assign(layout, sites, draw)
    packages = directories(layout, layout.requirements, sessions.hellos) if layout.requirements else {}
    port = guard_port(layout, sites, tasks, draw)
    # Asked last: a client in the queue tries again and again, and each time would connect to these hosts anew.
    highest = others.highest() if others else 0
    attempt = 1 + max(highest, *(hello.highest for hello in sessions.hellos.values()))
    run, secret, key = secrets.token_hex(4), secrets.token_hex(16), secrets.token_hex(32)
    return Job(layout, attempt, run, time.time(), tasks, secret, port, key, packages)


def _require_horovod(layout: Layout, hellos: Mapping[str, wire.Hello]) -> None:
    """Raise PreflightFailed if a task's stack has no Horovod on its host.

    If the stack itself is missing, the host refuses the start.
    """
    lacking: dict[str, dict[str, None]] = {}
    for slot in layout.slots:
        if (hellos[slot.host.name].horovod or {}).get(slot.stack) is False:
            lacking.setdefault(slot.stack, {})[slot.host.name] = None
    if lacking:
        raise PreflightFailed(
            Lines(*(f"{', '.join(hosts)}: stack {stack} has no Horovod there" for stack, hosts in lacking.items())),
            f"set tfctl_horovod=true for these hosts in the inventory, then run: tfctl provision {layout.inventory}",
        )


def _require_same_tensorflow(layout: Layout, hellos: Mapping[str, wire.Hello]) -> None:
    """Raise PreflightFailed if the hosts report different versions of TensorFlow for the tasks of one cluster."""
    for cluster in versions.clusters(layout.strategy, layout.slots):
        found = [(slot, (hellos[slot.host.name].tensorflow or {}).get(slot.stack)) for slot in cluster]
        if different := versions.different(found):
            raise PreflightFailed(
                f"the tasks of one cluster have different versions of TensorFlow: {different}",
                f"set one `stack:` in the job file, or install the same one: tfctl provision {layout.inventory}",
            )


def _resolved(hellos: Iterable[wire.Hello]) -> dict[str, str]:
    """Return the first address that a host has found for each name and that is not loopback."""
    found: dict[str, str] = {}
    for hello in hellos:
        for name, address in hello.names.items():
            if address and not address.startswith("127."):
                found.setdefault(name, address)
    return found


def _site(host: Host, hello: wire.Hello, resolved: Mapping[str, str], alone: bool) -> Site:
    """Return what the host offers. ``resolved``: the addresses that hosts have found for names. ``alone``: whether it
    is the only host of the job."""
    address = own_address(host, alone) or resolved.get(host.name)
    if address is None and host.is_local:
        raise BadFile(
            f"{host.name}: tfctl cannot tell at which address the other hosts reach this machine",
            "set tfctl_address for it in the inventory",
        )
    if address is None:
        raise PreflightFailed(
            f"{host.name}: the hosts cannot resolve this name", "set tfctl_address or ansible_host for it"
        )
    free = tuple(gpu.uuid for gpu in hello.gpus if not gpu.holder)
    owners = tuple(gpu.holder for gpu in hello.gpus if gpu.holder)
    trouble = as_error(host.name, hello.gpu_trouble) if hello.gpu_trouble else None
    missing = missing_gpus(host, hello.gpu_cards, hello.missing_gpus)
    return Site(address, hello.ports, free, owners, trouble, missing, alone and host.is_local)
