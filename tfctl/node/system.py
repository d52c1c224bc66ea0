"""The system that the node part runs on: a file tree, an account, systemctl, journalctl and nvidia-smi.

The installed program uses the defaults of System. Only tests can pass another.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from . import names, unit_list, versions, wire
from .exits import Exit
from .network import Network
from .session import RequestRefused

K = TypeVar("K")

PROVISION = "run: tfctl provision INVENTORY --tags job_host"
_QUIET = ("--no-pager", "--no-ask-password")
#: How long (s) to wait for the end of a program that was killed.
_KILLED_S = 1.0
#: The properties read of each unit. Monotonic timestamps are the only ones that all versions print alike.
PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "Result", "InvocationID", "ControlGroup", "NeedDaemonReload",
    "DropInPaths", "FragmentPath", "ExecMainCode", "ExecMainStatus", "ExecMainStartTimestampMonotonic",
    "ExecMainExitTimestampMonotonic", "Job", "NRestarts",
)  # fmt: skip
#: Most units in one call: the length of a command line is limited.
_BATCH = 500


class ProgramResult(NamedTuple):
    """A program's exit status and output."""

    status: int
    output: str
    errors: str


class System(NamedTuple):
    """``prefix`` is prepended to every path; ``nvidia_smi_timeout``, ``silence`` and ``grace`` are
    in seconds. ``nvml``: the library of NVIDIA's that reads GPUs. ``network``: where other hosts are looked up."""

    prefix: str = ""
    account: str = names.USER
    guard: str = names.GUARD_USER
    # In /bin: Debian 11 may have them only there; with a merged /usr it is the same directory.
    systemctl: tuple[str, ...] = ("/bin/systemctl",)
    journalctl: tuple[str, ...] = ("/bin/journalctl",)
    nvidia_smi: tuple[str, ...] = ("/usr/bin/nvidia-smi",)
    nvidia_smi_timeout: float = 20.0
    nvml: str = "libnvidia-ml.so.1"
    systemd_run: tuple[str, ...] = ("/bin/systemd-run",)
    ss: tuple[str, ...] = ("/bin/ss",)
    silence: float = wire.SILENCE_S
    grace: float = 5.0
    network: Network = Network()

    def at(self, path: str) -> Path:
        """Return the path of a file that is at the absolute path ``path`` on the node."""
        return Path(self.prefix + path)

    def user(self) -> pwd.struct_passwd:
        """Return the account that jobs run as. Raises RequestRefused."""
        try:
            found = pwd.getpwnam(self.account)
        except KeyError:
            raise RequestRefused(Exit.PREFLIGHT, f"{host()} has no user {self.account}", PROVISION) from None
        if found.pw_uid == 0:
            raise RequestRefused(
                Exit.PREFLIGHT, f"user {self.account} of {host()} is root; jobs must not run as root", PROVISION
            )
        return found

    def boot(self) -> str:
        """Return the boot ID as systemd writes it, in 32 hex digits, or "" if it cannot be read."""
        try:
            return self.at("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")
        except (OSError, ValueError):
            return ""

    def machine(self) -> str | None:
        """Return text that no other machine has, or None. Clones share all but the boot ID, and containers may share
        the boot ID of their machine."""
        try:
            machine_id = self.at("/etc/machine-id").read_text("ascii").strip()
        except (OSError, ValueError):
            machine_id = ""
        return f"{self.boot()} {machine_id} {host()}" if self.boot() else None

    def manage(self, *words: str, timeout: float = 60.0) -> ProgramResult:
        """Run systemctl and wait for it. Raises RequestRefused if that takes longer than ``timeout`` seconds."""
        return run([*self.systemctl, *_QUIET, *words], timeout)

    def managing(self, *words: str) -> subprocess.Popen[bytes]:
        """Start systemctl with its stderr as a pipe, and return the process."""
        return subprocess.Popen(
            [*self.systemctl, *_QUIET, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip

    def show(self, units: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """Return the PROPERTIES of each unit. A missing unit has LoadState ``not-found``. Raises RequestRefused."""
        found: dict[str, Mapping[str, str]] = {}
        for start in range(0, len(units), _BATCH):
            batch = units[start : start + _BATCH]
            done = self.manage("show", "--property=" + ",".join(PROPERTIES), "--", *batch)
            blocks = done.output.strip("\n").split("\n\n")
            if done.status != 0 or len(blocks) != len(batch):
                raise RequestRefused(Exit.FAILED, f"systemctl show failed on {host()}: {done.errors or 'no answer'}")
            for unit, block in zip(batch, blocks):
                found[unit] = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        return found

    def live_or_queued(self) -> list[str]:
        """Return the units of tasks and guards that run, start, end or have a job queued. Raises RequestRefused."""
        done = self.manage(*unit_list.ARGUMENTS)
        if done.status != 0:
            raise RequestRefused(Exit.FAILED, f"systemctl list-units failed on {host()}: {done.errors or 'no answer'}")
        return unit_list.live_or_queued(done.output)

    def sees_execution(self) -> bool:
        """Return whether units may use Type=exec.

        Before version 249 (Debian 11 has 247), PID 1 loses an event source if such a unit has an ExecStopPost= and
        ends while it is being executed: PID 1 spins and the host stops answering (systemd PR #20030). So a version that
        cannot be read counts as old.
        """
        return self.systemd() >= 249

    def systemd(self) -> int:
        """Return systemd's version, such as 252, or 0 if it cannot be read."""
        return _version(self.systemctl)

    def settle(self, units: Sequence[str], load_state: str) -> dict[str, Mapping[str, str]]:
        """Make systemd notice unit files just written (``loaded``) or removed (``not-found``). Return what `show` does.

        systemd usually finds new files by itself. Reload only if it did not: a reload is slow on a large host and can
        detach containers from their GPUs. Raises RequestRefused.
        """
        shown = self.show(units)
        if any(one.get("LoadState") != load_state or one.get("NeedDaemonReload") == "yes" for one in shown.values()):
            done = self.manage("daemon-reload", timeout=90.0)
            if done.status != 0:
                raise RequestRefused(Exit.FAILED, f"systemctl daemon-reload failed on {host()}: {done.errors}")
            shown = self.show(units)
        return shown


@functools.cache
def _version(systemctl: tuple[str, ...]) -> int:
    return versions.systemd(systemctl) or 0


def clock_zero() -> float:
    """Return the epoch seconds at which the monotonic clock, which systemd's timestamps use, was zero."""
    return time.time() - time.monotonic()


def host() -> str:
    """Return this machine's own host name."""
    return os.uname().nodename


def node_part() -> str:
    """Return the version of this node part: the name of the directory that it is installed in (tfctl.node.__main__)."""
    return Path(__file__).resolve().parent.parent.name


def caller() -> str:
    """Return the login name of the user who ran sudo."""
    return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name


def run_at_once(commands: Mapping[K, Sequence[str]], timeout: float) -> dict[K, bytes]:
    """Run programs at the same time, and return what each has printed, in the given order. One that cannot be started
    or has not ended after ``timeout`` seconds is missing, with all after it."""
    running: dict[K, subprocess.Popen[bytes]] = {}
    found = {}
    until = time.monotonic() + timeout
    try:
        for key, command in commands.items():
            running[key] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for key, process in running.items():
            found[key], _ = process.communicate(timeout=max(0.1, until - time.monotonic()))
    except (OSError, subprocess.TimeoutExpired):
        pass
    finally:
        for process in running.values():
            process.kill()
            process.communicate()
    return found


def run(command: list[str], timeout: float) -> ProgramResult:
    """Run a program and wait for it. Raises RequestRefused if it cannot be started or takes too long.

    A program that hangs in the kernel does not end when it is killed, so this does not wait for that.
    """
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise RequestRefused(Exit.FAILED, f"cannot run {command[0]} on {host()}: {error.strerror}") from None
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException as error:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_S)
        for pipe in (process.stdout, process.stderr):
            assert pipe
            pipe.close()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        what = f"{command[0]} on {host()} ran longer than {timeout:.0f} s and was killed"
        raise RequestRefused(Exit.FAILED, what, "run it on the host to see what it waits for") from None
    return ProgramResult(
        process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace").strip()
    )
