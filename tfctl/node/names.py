"""Names and paths on a node, derived from job, role and index. Client and node both use this module."""

from __future__ import annotations

import re
from collections.abc import Iterable

JOB = re.compile(r"[a-z][a-z0-9-]{0,39}")
# No dash in a role: otherwise job `a`, role `b-c` would share unit names with job `a-b`, role `c`.
ROLE = re.compile(r"[a-z][a-z0-9_]{0,19}")
RUN = re.compile(r"[0-9a-f]{8}")
STACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
#: Characters that no name or address has: control characters, and those that are invisible or turn text around.
_UNSEEN = r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
#: An inventory's name of a host, and an address. Neither may look like an option or contain a separator.
HOST = re.compile(rf"(?!-|\.{{1,2}}$)[^\s{_UNSEEN}/,]{{1,255}}")
ADDRESS = re.compile(rf"""(?!-)[^\s{_UNSEEN}'`"$\\;&<>|(){{}},/]{{1,255}}""")
#: Output directories: paths that a unit can quote without escapes.
OUTPUT = re.compile(r"/[A-Za-z0-9._/@+=:,-]{1,200}")
#: A directory of the packages of a requirements file.
REQUIREMENTS_DIR = re.compile(r"/opt/tfctl/requirements/[0-9a-f]{12}")
DIGEST = re.compile(r"[0-9a-f]{64}")

USER = "tfctl"
#: The user as whom the guards of jobs run.
GUARD_USER = "tfctl-guard"
UNITS = "/run/systemd/system"
DROP_IN = "/etc/systemd/system/tfctl-.service.d/10-tfctl.conf"
RUN_DIR = "/run/tfctl"
#: The beginning of the directories of commands beside tasks.
EXEC_DIR = f"{RUN_DIR}/exec-"
STATE_DIR = "/var/lib/tfctl"
JOBS = f"{STATE_DIR}/jobs"
CODE_STORE = f"{STATE_DIR}/code"
HOME = f"{STATE_DIR}/home"
STACKS = "/opt/tfctl/stacks"
#: The packages that jobs need besides their stack. tfctl.model.requirements derives the names of its directories.
REQUIREMENTS = "/opt/tfctl/requirements"
#: The file in such a directory that is written last.
REQUIREMENTS_MARKER = "tfctl-requirements.json"
#: The program that shows the stacks of tasks, which the role py_spy installs.
PY_SPY = "/opt/tfctl/py-spy/py-spy"
LIB = "/usr/local/lib/tfctl"
#: The one program that sudoers allows, without arguments. It reads its request from stdin.
PROGRAM = "/usr/local/sbin/tfctl-node"
#: The program that ExecStopPost runs as the jobs' user, with the task's directory as its only argument.
END_PROGRAM = f"{LIB}/current/end"
#: The program that ExecStartPre runs as `note begin DIRECTORY BOOT_ID`, and ExecStop as `note stop DIRECTORY`.
NOTE_PROGRAM = f"{LIB}/current/note"
#: Directories that units cannot see (ProtectHome= in 10-tfctl.conf), so no output can be there.
HIDDEN = ("/home", "/root", "/run/user")
#: The PATH that systemd gives a unit that sets none (systemd.exec(5)).
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The directory of tfctl_runtime, on the import path of every stack's Python.
RUNTIME = f"{LIB}/current/runtime"


def task(role: str, index: int) -> str:
    """Return a task's name as users write it: ``worker/3``."""
    return f"{role}/{index}"


def endpoint(address: str, port: int) -> str:
    """Return ``address:port``, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def task_key(role: str, index: int) -> str:
    """Return the name of a task's directory, which is also its key in began.json: ``worker-3``."""
    return f"{role}-{index}"


def stem(job: str, role: str, index: int) -> str:
    """Return the name of a task's unit and environment file, without suffix."""
    return f"tfctl-{job}-{task_key(role, index)}"


def unit(job: str, role: str, index: int) -> str:
    return f"{stem(job, role, index)}.service"


def job_slice(job: str) -> str:
    """Return the job's slice, with underscores for dashes, which would nest it (systemd.slice(5))."""
    return f"tfctl-{job.replace('-', '_')}.slice"


def cgroup(job: str, role: str, index: int) -> str:
    """Return the path of the cgroup of a task's unit below that of the host's systemd."""
    return f"/tfctl.slice/{job_slice(job)}/{unit(job, role, index)}"


def unit_file(job: str, role: str, index: int) -> str:
    return f"{UNITS}/{unit(job, role, index)}"


def env_file(job: str, role: str, index: int) -> str:
    return f"{RUN_DIR}/env/{stem(job, role, index)}.env"


def deadline_units(job: str, role: str, index: int) -> tuple[str, str]:
    """Return the timer of a task's deadline and the service that it starts.

    They do not begin with ``tfctl-``: the drop-in of the tasks must not apply, and the service runs as root.
    """
    stem = f"tfctldeadline-{job}-{task_key(role, index)}"
    return f"{stem}.timer", f"{stem}.service"


def guard(job: str) -> str:
    """Return what hosts and messages call the guard of a job, also as the holder of a port."""
    return f"the guard of job {job}"


#: The name of `guard_service`, which contains that of the job.
GUARD_SERVICE = re.compile(rf"tfctlguard-({JOB.pattern})\.service")


def guard_service(job: str) -> str:
    """Return the unit of the job's guard. It is not one of the job's own units: neither their drop-in nor the job's
    slice applies to it."""
    return f"tfctlguard-{job}.service"


def guard_sockets(job: str) -> tuple[str, str]:
    """Return the units of the guard's two sockets: the one on which other hosts' guards reach it, and the local one
    through which it reaches the node part."""
    return f"tfctlguard-{job}.socket", f"tfctlguardroot-{job}.socket"


def guard_session(job: str) -> str:
    """Return the template of the services that systemd starts for connections to the local socket."""
    return f"tfctlguardroot-{job}@.service"


def notify_service(job: str) -> str:
    """Return the unit of the program that the policy of the job names for its end."""
    return f"tfctlguardnotify-{job}.service"


def notify_input(job: str) -> str:
    """Return the path of that program's stdin."""
    return f"{RUN_DIR}/guard/{job}.outcome"


def guard_socket_file(job: str) -> str:
    return f"{RUN_DIR}/guard/{job}.sock"


def guard_key(job: str) -> str:
    """Return the path of the job's key (tfctl.node.wire.PlannedGuard), which only root can read."""
    return f"{RUN_DIR}/guard/{job}.key"


def guard_dir(job: str, attempt: int) -> str:
    """Return the only directory that the guard may write to."""
    return f"{attempt_dir(job, attempt)}/guard"


def causes_file(job: str, attempt: int) -> str:
    """Return the file in which the guard notes why tasks have failed."""
    return f"{guard_dir(job, attempt)}/causes.json"


def stall_file(job: str, attempt: int) -> str:
    """Return the file in which the guard notes what the tasks did when the job stalled."""
    return f"{guard_dir(job, attempt)}/stall.json"


def samples_dir(job: str, attempt: int) -> str:
    """Return the directory in which the guard keeps the samples of the tasks."""
    return f"{guard_dir(job, attempt)}/samples"


def exec_unit(job: str, key: str) -> str:
    """Return the unit of a command beside a job's tasks. The drop-in of the tasks applies to it. Its name is not one of
    the job's units, because no job's name has capitals; the job's slice contains it."""
    return f"tfctl-EXEC-{job}-{key}.service"


def exec_dir(key: str) -> str:
    """Return the directory with the pipes of such a unit, which only root may enter."""
    return f"{EXEC_DIR}{key}"


def ended_dir(job: str) -> str:
    """Return the directory that keeps unit and environment files of ended tasks: in memory, readable by root only."""
    return f"{RUN_DIR}/ended/{job}"


def ended_guard_key(job: str) -> str:
    """Return where the key of a guard that has left is kept, if it names somebody to notify."""
    return f"{ended_dir(job)}/guard.key"


def job_dir(job: str) -> str:
    return f"{JOBS}/{job}"


def attempt_dir(job: str, attempt: int) -> str:
    return f"{JOBS}/{job}/{attempt}"


def record_file(job: str, attempt: int) -> str:
    """Return the path of the attempt's record (tfctl.node.wire.Record), which is the same on all its hosts."""
    return f"{attempt_dir(job, attempt)}/job.json"


def code_dir(job: str, attempt: int) -> str:
    """Return the attempt's own writable copy of the code, the working directory of its tasks."""
    return f"{attempt_dir(job, attempt)}/code"


def task_dir(job: str, attempt: int, role: str, index: int) -> str:
    """Return the task's directory. It belongs to the jobs' user and holds ``ends.jsonl``."""
    return f"{attempt_dir(job, attempt)}/{task_key(role, index)}"


def timings_file(job: str, attempt: int, role: str, index: int) -> str:
    """Return the file in which tfctl_runtime records how fast the task trains."""
    return f"{task_dir(job, attempt, role, index)}/timings.jsonl"


def stop_mark(job: str, attempt: int, role: str = "", index: int = 0) -> str:
    """Return the path of the job's stop mark or, with a role, of a task's. Root owns it, so no task can write one."""
    return f"{attempt_dir(job, attempt)}/stopped/{task_key(role, index) if role else 'job'}"


def deadline_mark(job: str, attempt: int, role: str, index: int) -> str:
    """Return the path of the mark that tfctl ends the task at its deadline. Root owns it, as it owns the stop marks."""
    return f"{stop_mark(job, attempt, role, index)}.deadline"


def given_up_mark(job: str, attempt: int, role: str, index: int) -> str:
    """Return the path of the mark that tfctl does not start the task again. Root owns it, as it owns the stop marks."""
    return f"{stop_mark(job, attempt, role, index)}.given-up"


def rebooted_file(job: str, attempt: int) -> str:
    """Return the path of the list of hosts that were rebooted during the attempt, which clients write on the head."""
    return f"{attempt_dir(job, attempt)}/rebooted.json"


def stored_code(digest: str) -> str:
    return f"{CODE_STORE}/{digest}"


def stack_dir(stack: str) -> str:
    """Return the path of the link to the stack's current environment, ``<stack>-<digest>`` in the same directory."""
    return f"{STACKS}/{stack}"


def requirements_dir(digest: str) -> str:
    return f"{REQUIREMENTS}/{digest}"


def writable(job: str, attempt: int, output: str) -> tuple[str, ...]:
    """Return the directories that a task may write to, besides its private /tmp. ``output`` may be ""."""
    return (attempt_dir(job, attempt), HOME, *([output] if output else []))


def port_list(ports: Iterable[int]) -> str:
    """Return the value of Ports= in a unit's X-Tfctl section."""
    return " ".join(str(port) for port in ports)


def printable(name: str) -> str:
    """Return a name that a program has given itself, with `?` for newlines and whatever else is not printed."""
    return "".join(char if char.isprintable() else "?" for char in name)
