"""The units of a job's guard (tfctl.node.guard), written, started and removed by root together with the job's tasks.

tfctlguard-JOB.service        the guard, as user tfctl-guard; one for all attempts of the job
tfctlguard-JOB.socket         where the guards of the other hosts reach it; only on the head host, if there are others
tfctlguardroot-JOB.socket     where it reaches the node part, which serves a few requests about this job as root
tfctlguardroot-JOB@.service   one connection to that socket
tfctlguardnotify-JOB.service  the program that the policy names for the end of the job, as the jobs' user; on the head
/run/tfctl/guard/JOB.key      the key of the job, and whom to notify; systemd passes it to the guard as a credential;
                              once the job is over, it moves to the job's restart files if somebody is to be notified

They name the version of the node part that started the job, which `provision` keeps as long as these files exist.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from . import jobstore, names, restart_files, states, unitfile, wire
from .exits import Exit
from .guard.credentials import Credentials
from .session import RequestRefused
from .system import PROVISION, System, host

T = TypeVar("T")

_SERVICE = """\
[Unit]
Description=Guard of tfctl {job}
StartLimitIntervalSec=600
StartLimitBurst=20

[Service]
Type={type}
Slice=system.slice
User={user}
Group={user}
SupplementaryGroups={jobs_user}
ExecStart={program} run {job}
LoadCredential=key:{key}
Restart=on-failure
RestartSec=2s
OOMScoreAdjust=-900
MemoryMax=1G
LimitNOFILE=16384
SyslogIdentifier=tfctl-guard
UMask=0022
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ReadWritePaths={jobs}
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
_PEERS = """\
[Unit]
Description=Guards of the other hosts of tfctl {job}

[Socket]
ListenStream={port}
BindIPv6Only=both
Backlog=4096
ReceiveBuffer=16K
"""
_ROOT = """\
[Unit]
Description=Requests of the guard of tfctl {job}

[Socket]
ListenStream={socket}
SocketUser={user}
SocketMode=0600
DirectoryMode=0711
Accept=yes
MaxConnections=32
RemoveOnStop=yes
"""
_SESSION = """\
[Unit]
Description=A request of the guard of tfctl {job}
CollectMode=inactive-or-failed

[Service]
Slice=system.slice
ExecStart={program} root {job}
StandardInput=socket
StandardOutput=socket
StandardError=journal
SyslogIdentifier=tfctl-node
NoNewPrivileges=yes
DevicePolicy=closed
DeviceAllow=char-nvidia* rwm
"""
#: The shipped drop-in of tasks comes first, with the user and the restrictions; it begins the section Service.
_NOTIFY = """\
[Unit]
Description=Notification about the end of tfctl {job}

{drop_in}
Type=oneshot
ExecStart=:/usr/bin/env {words}
StandardInput=file:{input}
{writable}SyslogIdentifier=tfctl-notify
TimeoutStartSec={limit:.0f}s
"""
#: How long the program may run (s).
NOTIFY_S = 60.0
_PORT = re.compile(r"^ListenStream=([0-9]+)$", re.MULTILINE)
_OF_JOB = re.compile(rf"tfctlguard-({names.JOB.pattern})\.socket")


def write(system: System, plan: wire.Plan) -> None:
    """Write the guard's units and key, if the plan has a guard. Raises RequestRefused, OSError."""
    guard, planned = plan.record.guard, plan.guard
    if guard is None or planned is None:
        return
    here = next((task.host for task in plan.record.tasks if task.name == plan.tasks[0].name), "")
    program = f"{names.LIB}/{_version(system)}/guard"
    own, (peers, root) = names.guard_service(plan.job), names.guard_sockets(plan.job)
    values = {
        "job": plan.job, "user": system.guard, "jobs_user": system.account,
        "jobs": names.job_dir(plan.job), "key": names.guard_key(plan.job),
        "socket": names.guard_socket_file(plan.job), "port": guard.port, "program": program,
        "type": "exec" if system.sees_execution() else "simple",
    }  # fmt: skip
    templates = {own: _SERVICE, root: _ROOT, names.guard_session(plan.job): _SESSION}
    if guard.port and here == guard.head:
        templates[peers] = _PEERS
    texts = {name: text.format(**values) for name, text in templates.items()}
    if planned.notify and planned.notify.command and here == guard.head:
        texts[names.notify_service(plan.job)] = _notify_unit(plan, planned.notify)
    folder = system.at(names.guard_key(plan.job)).parent
    folder.mkdir(0o711, parents=True, exist_ok=True)
    credentials = Credentials(here, planned.key, planned.notify if here == guard.head else None)
    jobstore.write(system.at(names.guard_key(plan.job)), json.dumps(wire.encode(credentials)).encode(), 0o600)
    for name, text in texts.items():
        jobstore.write(system.at(names.UNITS) / name, text.encode())


def _notify_unit(plan: wire.Plan, notify: wire.Notify) -> str:
    drop_in = Path(__file__).with_name("10-tfctl.conf").read_text()
    words = " ".join(unitfile.word(word) for word in notify.command)
    return _NOTIFY.format(
        job=plan.job, drop_in=drop_in, words=words, input=names.notify_input(plan.job),
        writable=f'ReadWritePaths="{plan.output}"\n' if plan.output else "", limit=NOTIFY_S,
    )  # fmt: skip


def _version(system: System) -> str:
    """Return the directory of the installed version of the node part, whatever is installed later."""
    try:
        return system.at(f"{names.LIB}/current").readlink().name
    except OSError:
        return "current"


def make_dir(system: System, job: str, attempt: int) -> None:
    """Make the directory of an attempt that the guard may write to. Raises RequestRefused, OSError."""
    path = system.at(names.guard_dir(job, attempt))
    path.mkdir(0o755)
    user = account(system)
    os.chown(path, user.pw_uid, user.pw_gid)


def account(system: System) -> pwd.struct_passwd:
    """Return the guards' account. Raises RequestRefused."""
    try:
        return pwd.getpwnam(system.guard)
    except KeyError:
        raise RequestRefused(Exit.PREFLIGHT, f"{host()} has no user {system.guard}", PROVISION) from None


def installed(system: System, job: str) -> list[str]:
    """Return the guard's units that have files, sockets first, without the template of its sessions."""
    units = (*names.guard_sockets(job), names.guard_service(job))
    return [unit for unit in units if (system.at(names.UNITS) / unit).exists()]


def jobs(system: System) -> list[str]:
    """Return the jobs whose guard has a file here."""
    found = (names.GUARD_SERVICE.fullmatch(name) for name in jobstore.listing(system.at(names.UNITS)))
    return [match.group(1) for match in found if match]


def of_jobs(system: System, jobs: Iterable[str]) -> dict[str, str]:
    """Return those guard services of these jobs that have files, each with its job."""
    here = set(jobstore.listing(system.at(names.UNITS)))
    services = {names.guard_service(job): job for job in jobs}
    return {unit: job for unit, job in services.items() if unit in here}


def replaced(plan: wire.Plan) -> bool:
    """Return whether the guard of the attempt before is removed when this one is started. It is not if it starts it."""
    return plan.guard is not None or plan.record.guard is None


def is_needed(system: System, job: str) -> bool:
    """Return whether the guard runs, and the job is not over as far as this host knows: nobody has stopped it, and the
    guard has not noted its end. Raises RequestRefused."""
    attempt = jobstore.latest(system, job)
    if jobstore.marked(system, job, attempt) is not None or not is_live(system, job):
        return False
    noted = report(system, job, attempt)
    return not (noted and noted.over)


def is_live(system: System, job: str) -> bool:
    """Return whether the guard runs, or systemd is about to start it again. Raises RequestRefused."""
    unit = names.guard_service(job)
    return unit in installed(system, job) and states.is_live(system.show([unit])[unit])


def notify(system: System, job: str) -> wire.Notify | None:
    """Return whom the job's guard, or its last guard, notifies from this host."""
    for path in (names.guard_key(job), names.ended_guard_key(job)):
        with contextlib.suppress(OSError):
            return wire.decode(Credentials, wire.parse(system.at(path).read_bytes())).notify
    return None


def remove(system: System, job: str, *, wait: bool = True, keep_notify: bool = False) -> None:
    """Stop the guard and remove its units and its key. Raises RequestRefused.

    ``wait``: until systemd has stopped them. ``keep_notify``: keep whom to notify, for a restart of the job.
    """
    if keep_notify and notify(system, job):
        restart_files.make_folder(system, job)
        with contextlib.suppress(FileNotFoundError):
            system.at(names.guard_key(job)).replace(system.at(names.ended_guard_key(job)))
    units = installed(system, job)
    others = (names.guard_session(job), names.notify_service(job))
    files = [system.at(names.UNITS) / unit for unit in (*units, *others)]
    if units and wait:
        system.manage("stop", "--", *units)
    for path in (*files, system.at(names.guard_key(job)), system.at(names.notify_input(job))):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    if units and not wait:  # this process may be a session of the guard: the files are gone before systemd ends it
        system.manage("stop", "--no-block", "--", *units)
    with contextlib.suppress(OSError):
        system.at(names.guard_socket_file(job)).unlink()
    if units:
        # The program for the end of the job may have failed.
        system.manage("reset-failed", "--", *units, names.notify_service(job))
    with contextlib.suppress(OSError):
        system.at(names.guard_key(job)).parent.rmdir()


def held_ports(system: System) -> dict[int, str]:
    """Return the ports on which guards listen, with the job of each."""
    found = {}
    for name in jobstore.listing(system.at(names.UNITS)):
        job = _OF_JOB.fullmatch(name)
        if job:
            with contextlib.suppress(OSError):
                port = _PORT.search((system.at(names.UNITS) / name).read_text())
                found.update({int(port.group(1)): names.guard(job.group(1))} if port else {})
    return found


def report(system: System, job: str, attempt: int) -> wire.GuardReport | None:
    """Return what the guard has noted about the attempt, or None if there is nothing."""
    return _decoded(wire.GuardReport, system, f"{names.guard_dir(job, attempt)}/report.json")


def causes(system: System, job: str, attempt: int) -> dict[wire.TaskName, wire.NotedCause]:
    """Return the causes of failures and restarts that the guard has noted, by task."""
    found = _decoded(wire.NotedCauses, system, names.causes_file(job, attempt))
    return {task.name: task for task in found.tasks} if found else {}


def stall(system: System, job: str, attempt: int) -> wire.StallTrace | None:
    """Return what the tasks did when the guard noticed that the job had stalled, if it has."""
    return _decoded(wire.StallTrace, system, names.stall_file(job, attempt), wire.LINE_LIMIT)


def actions(system: System, job: str, attempt: int) -> list[wire.UserAction]:
    """Return what the guard has noted that it did, oldest first."""
    try:
        return jobstore.parse_actions(jobstore.read_untrusted(system.at(names.guard_dir(job, attempt)) / "notes.jsonl"))
    except OSError:
        return []


def _decoded(kind: type[T], system: System, path: str, room: int = jobstore.UNTRUSTED) -> T | None:
    """Return what a file of the guard's directory holds, which the guard controls, or None if it cannot be read."""
    try:
        return wire.decode(kind, wire.parse(jobstore.read_untrusted(system.at(path), room)))
    except (OSError, wire.Malformed):
        return None
