"""Every name and path on a node that follows from a job, a role and an index. Said once, for both sides of the wire."""

from __future__ import annotations

import re
from collections.abc import Iterable

JOB = re.compile(r"[a-z][a-z0-9-]{0,39}")
# No dash in a role: else job `a`, role `b-c` would have the units of job `a-b`, role `c`.
ROLE = re.compile(r"[a-z][a-z0-9_]{0,19}")
RUN = re.compile(r"[0-9a-f]{8}")
STACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")

USER = "tfctl"
UNITS = "/run/systemd/system"
DROP_IN = "/etc/systemd/system/tfctl-.service.d/10-tfctl.conf"
RUN_DIR = "/run/tfctl"
STATE_DIR = "/var/lib/tfctl"
JOBS = f"{STATE_DIR}/jobs"
CODE_STORE = f"{STATE_DIR}/code"
HOME = f"{STATE_DIR}/home"
STACKS = "/opt/tfctl/stacks"
LIB = "/usr/local/lib/tfctl"
#: What sudoers allows, without arguments; it reads its request from stdin.
PROGRAM = "/usr/local/sbin/tfctl-node"
#: What ExecStopPost runs as the job's user, with the task's directory as its one argument.
END_PROGRAM = f"{LIB}/current/end"
#: What systemd gives a unit that has no PATH of its own (systemd.exec(5)).
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Where tfctl_runtime is; every stack's Python looks there.
RUNTIME = f"{LIB}/current/runtime"


def task(role: str, index: int) -> str:
    """``worker/3``, as people write it."""
    return f"{role}/{index}"


def stem(job: str, role: str, index: int) -> str:
    """What a task's unit and environment file are called, without suffix."""
    return f"tfctl-{job}-{role}-{index}"


def unit(job: str, role: str, index: int) -> str:
    return f"{stem(job, role, index)}.service"


def job_slice(job: str) -> str:
    """systemd.slice(5) nests by dashes, so the job's own become underscores, which no job name has."""
    return f"tfctl-{job.replace('-', '_')}.slice"


def unit_file(job: str, role: str, index: int) -> str:
    return f"{UNITS}/{unit(job, role, index)}"


def env_file(job: str, role: str, index: int) -> str:
    return f"{RUN_DIR}/env/{stem(job, role, index)}.env"


def ended_dir(job: str) -> str:
    """Where the texts of units and environment files lie when their tasks have ended: in memory, for root alone."""
    return f"{RUN_DIR}/ended/{job}"


def job_dir(job: str) -> str:
    return f"{JOBS}/{job}"


def attempt_dir(job: str, attempt: int) -> str:
    return f"{JOBS}/{job}/{attempt}"


def record_file(job: str, attempt: int) -> str:
    """The job as it was started, the same on all its hosts (wire.Record)."""
    return f"{attempt_dir(job, attempt)}/job.json"


def code_dir(job: str, attempt: int) -> str:
    """The attempt's own writable copy of the code, and the working directory of its tasks."""
    return f"{attempt_dir(job, attempt)}/code"


def task_dir(job: str, attempt: int, role: str, index: int) -> str:
    """Belongs to the job's user; holds ``ends.jsonl``."""
    return f"{attempt_dir(job, attempt)}/{role}-{index}"


def stop_mark(job: str, attempt: int, role: str = "", index: int = 0) -> str:
    """The job's stop mark, or (with a role) a task's. Root's, so that no task can write its own."""
    return f"{attempt_dir(job, attempt)}/stopped/{f'{role}-{index}' if role else 'job'}"


def stored_code(digest: str) -> str:
    return f"{CODE_STORE}/{digest}"


def stack_dir(stack: str) -> str:
    """A link to the environment in use: ``<stack>-<digest>`` beside it."""
    return f"{STACKS}/{stack}"


def writable(job: str, attempt: int, output: str) -> tuple[str, ...]:
    """What a task's unit may write to beside its private /tmp and the home directory."""
    return (attempt_dir(job, attempt), HOME, output)


def port_list(ports: Iterable[int]) -> str:
    """The value of Ports= in a unit's section X-Tfctl."""
    return " ".join(str(port) for port in ports)
