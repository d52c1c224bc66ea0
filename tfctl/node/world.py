"""What the node part works on: a tree of files, an account, systemctl and journalctl.

The installed program takes World() as it stands. Tests give another; nothing else can.
"""

from __future__ import annotations

import functools
import os
import pwd
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from . import names, wire
from .talk import Refused

PROVISION = "run: tfctl provision --tags job_host"
_QUIET = ("--no-pager", "--no-ask-password")
#: Of every unit that is asked about. A timestamp by the monotonic clock is the one form that all versions print alike.
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "InvocationID", "ControlGroup", "NeedDaemonReload",
    "DropInPaths", "FragmentPath", "ExecMainCode", "ExecMainStatus", "ExecMainStartTimestampMonotonic",
    "ExecMainExitTimestampMonotonic", "Job",
)  # fmt: skip
#: Units in one call: a command line ends somewhere.
_BATCH = 500


class Done(NamedTuple):
    """How a program ended, and what it said."""

    status: int
    output: str
    errors: str


class World(NamedTuple):
    """``prefix`` stands before every path; ``silence`` and ``grace`` are seconds."""

    prefix: str = ""
    account: str = names.USER
    # In /bin: Debian 11 may have them there alone; where /usr is merged both are one.
    systemctl: tuple[str, ...] = ("/bin/systemctl",)
    journalctl: tuple[str, ...] = ("/bin/journalctl",)
    nvidia_smi: tuple[str, ...] = ("/usr/bin/nvidia-smi",)
    silence: float = wire.SILENCE_S
    grace: float = 5.0

    def at(self, path: str) -> Path:
        """An absolute path of the node."""
        return Path(self.prefix + path)

    def user(self) -> pwd.struct_passwd:
        """The account that jobs run as. Raises Refused."""
        try:
            found = pwd.getpwnam(self.account)
        except KeyError:
            raise Refused(8, f"{host()} has no user {self.account}", PROVISION) from None
        if found.pw_uid == 0:
            raise Refused(8, f"user {self.account} of {host()} is root: jobs must not be", PROVISION)
        return found

    def manage(self, *words: str, timeout: float = 60.0) -> Done:
        """Run systemctl to its end. Raises Refused when that takes too long."""
        return run([*self.systemctl, *_QUIET, *words], timeout)

    def managing(self, *words: str) -> subprocess.Popen[bytes]:
        """systemctl begun, with what it says on its stderr, a pipe."""
        return subprocess.Popen(
            [*self.systemctl, *_QUIET, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip

    def show(self, units: list[str]) -> dict[str, dict[str, str]]:
        """PROPERTIES of each unit. One that is not there has LoadState ``not-found``. Raises Refused."""
        found: dict[str, dict[str, str]] = {}
        for start in range(0, len(units), _BATCH):
            batch = units[start : start + _BATCH]
            done = self.manage("show", "--property=" + ",".join(PROPERTIES), "--", *batch)
            blocks = done.output.strip("\n").split("\n\n")
            if done.status != 0 or len(blocks) != len(batch):
                raise Refused(1, f"systemctl show failed on {host()}: {done.errors or 'no answer'}")
            for unit, block in zip(batch, blocks):
                found[unit] = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
        return found

    def sees_execution(self) -> bool:
        """Whether Type=exec may be used.

        Before version 249 (Debian 11 has 247) PID 1 loses an event source when such a unit ends while it is being
        executed and has an ExecStopPost=: it spins, and the whole host stops answering (systemd PR #20030).
        """
        return self.systemd() >= 249

    def systemd(self) -> int:
        """Its version: 252. One that does not say is taken for a new one, 999."""
        return _version(self.systemctl)

    def settle(self, units: list[str], load_state: str) -> dict[str, dict[str, str]]:
        """Have systemd see the unit files that were written (``loaded``) or removed (``not-found``) just now.

        It finds new files by itself; the reload, which takes long on a large host and can part containers from their
        GPUs, is for when it did not. Gives what `show` gives then. Raises Refused.
        """
        shown = self.show(units)
        if any(one.get("LoadState") != load_state or one.get("NeedDaemonReload") == "yes" for one in shown.values()):
            done = self.manage("daemon-reload", timeout=90.0)
            if done.status != 0:
                raise Refused(1, f"systemctl daemon-reload failed on {host()}: {done.errors}")
            shown = self.show(units)
        return shown


@functools.cache
def _version(systemctl: tuple[str, ...]) -> int:
    words = run([*systemctl, "--version"], 20.0).output.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 999


def clock_zero() -> float:
    """Epoch seconds of the monotonic clock's zero, which systemd's timestamps count from."""
    return time.time() - time.monotonic()


def host() -> str:
    """What this machine calls itself."""
    return os.uname().nodename


def caller() -> str:
    """Who asks: the login behind sudo."""
    return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name


def run(command: list[str], timeout: float) -> Done:
    """A program run to its end. Raises Refused when that takes too long, or cannot begin."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Refused(1, f"{command[0]} on {host()} took longer than {timeout:.0f} s") from None
    except OSError as error:
        raise Refused(1, f"cannot run {command[0]} on {host()}: {error.strerror}") from None
    return Done(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace").strip())
