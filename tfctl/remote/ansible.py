"""Run one of tfctl's playbooks in a child process: report events while it runs, and a summary at the end.

ansible-core is run, never imported. The plugin playbooks/callback_plugins/tfctl_events.py sends its events through a
pipe that the child inherits. A second pipe, once it closes, tells the plugin that this process was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tfctl
from tfctl.errors import BadFile, TfctlError
from tfctl.remote.report import Collector, Event, Report

#: Hosts that Ansible works on at once: each takes a process of some 50 MB here.
FORKS = 50
#: How long Ansible may take to end after Ctrl-C before it is killed.
GRACE_S = 5.0
_SSH = (
    "ControlMaster=auto",
    "ControlPersist=60s",
    # ssh would put its questions to the terminal, behind the progress that is shown there.
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    # A host that dies says nothing, and TCP by itself waits for a quarter of an hour.
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
)
_NO_HOSTS = ("inventory", "no hosts", "host pattern", "--limit")


@dataclass(frozen=True)
class Play:
    """``playbook``: its name in playbooks/. ``limit``: a host pattern. ``variables`` go before the inventory's."""

    playbook: str
    inventory: Path
    limit: str | None = None
    tags: tuple[str, ...] = ()
    check: bool = False
    diff: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)


def data_dir() -> Path:
    """Where playbooks/ and roles/ are: inside the installed package, or beside it in a checkout."""
    package = Path(tfctl.__file__).resolve().parent
    inside = package / "_ansible"
    return inside if inside.is_dir() else package.parent


def run(play: Play, listen: Callable[[Event], None]) -> Report:
    """Run it to its end on every host; what became of each is in the report.

    Raises BadFile for an inventory that cannot be read or has no such hosts, TfctlError when Ansible itself fails, and
    KeyboardInterrupt, once Ansible has ended, for Ctrl-C and SIGTERM.
    """
    if not play.inventory.exists():
        raise BadFile(
            f"{play.inventory}: no such inventory", "`tfctl lab up` makes a cluster here, and an inventory for it"
        )
    with tempfile.TemporaryDirectory(prefix="tfctl-", ignore_cleanup_errors=True) as name, _terminated_as_interrupted():
        folder = Path(name)
        collector = Collector()
        with _connections(folder / "ssh"), (folder / "said").open("w+", encoding="utf-8", errors="replace") as said:
            status = _run(play, folder, said.fileno(), lambda message: _tell(collector, message, listen))
            said.seek(0)
            last_words = _last_words(said.read(), status)
    if not collector.finished:
        raise _early_end(play, last_words)
    report = collector.report()
    if not report.hosts:
        raise BadFile(
            f"{play.inventory}: no hosts in it", "an inventory has one host a line: node1 ansible_host=10.0.0.1"
        )
    return report


def _tell(collector: Collector, message: Mapping[str, Any], listen: Callable[[Event], None]) -> None:
    for event in collector.take(message):
        listen(event)


def _run(play: Play, folder: Path, said: int, take: Callable[[Mapping[str, Any]], None]) -> int:
    reader, writer = os.pipe()
    alive, ours = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as events, os.fdopen(ours, "wb"):
        try:
            child = subprocess.Popen(
                _words(play, folder),
                env=_environment(folder, writer, alive),
                pass_fds=(writer, alive),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        finally:
            os.close(writer)
            os.close(alive)
        with _ending(child):
            for line in events:
                take(json.loads(line))
            return child.wait()


def _words(play: Play, folder: Path) -> list[str]:
    variables = folder / "variables.json"
    variables.write_text(json.dumps(play.variables))
    playbook = data_dir() / "playbooks" / f"{play.playbook}.yml"
    words = [sys.executable, "-m", "ansible", "playbook", str(playbook), "--inventory", str(play.inventory.absolute())]
    words += ["--forks", str(FORKS), "--extra-vars", f"@{variables}"]
    words += ["--limit", play.limit] if play.limit else []
    words += ["--tags", ",".join(play.tags)] if play.tags else []
    words += ["--check"] if play.check else []
    return words + (["--diff"] if play.diff else [])


def _environment(folder: Path, events: int, alive: int) -> dict[str, str]:
    """Our settings, above those of the ansible.cfg that Ansible finds; what they leave open is the user's."""
    playbooks = data_dir() / "playbooks"
    return {
        **os.environ,
        "TFCTL_EVENTS_FD": str(events),
        "TFCTL_ALIVE_FD": str(alive),
        "ANSIBLE_STDOUT_CALLBACK": "tfctl_events",
        "ANSIBLE_CALLBACK_PLUGINS": str(playbooks / "callback_plugins"),
        "ANSIBLE_ROLES_PATH": str(data_dir() / "roles"),
        "ANSIBLE_LIBRARY": str(playbooks / "library"),
        "ANSIBLE_MODULE_UTILS": str(playbooks / "module_utils"),
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_SSH_ARGS": shlex.join(word for option in _SSH for word in ("-o", option)),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "ssh"),
        "ANSIBLE_TIMEOUT": "20",
        "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
        "ANSIBLE_NO_TARGET_SYSLOG": "True",  # whole files are among the arguments
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_NOCOLOR": "1",
    }


@contextlib.contextmanager
def _ending(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """However the block is left, no process of Ansible's stays."""
    try:
        yield
    except BaseException:
        _signal_group(child, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            child.wait(GRACE_S)
        raise
    finally:
        _signal_group(child, signal.SIGKILL)
        child.wait()


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


@contextlib.contextmanager
def _connections(folder: Path) -> Iterator[None]:
    """The folder of ssh's shared connections, which are closed at the end: a lab that is made anew has new hosts."""
    folder.mkdir(mode=0o700)
    try:
        yield
    finally:
        closing = [_close(socket) for socket in folder.iterdir()]
        for process in closing:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)


def _close(socket: Path) -> subprocess.Popen[bytes]:
    words = ["ssh", "-F", "none", "-O", "exit", "-S", str(socket), "any"]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM is as Ctrl-C here: Ansible, in a session of its own, would go on. Only a main thread can take signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _last_words(said: str, status: int) -> str:
    """Of Ansible's own output: its error messages, where there are any."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("[ERROR]: ") for line in lines if line.startswith("[ERROR]")]
    return "\n".join(errors or lines[-1:]) or f"exit {status}"


def _early_end(play: Play, last_words: str) -> TfctlError:
    if any(word in last_words.lower() for word in _NO_HOSTS):
        return BadFile(f"{play.inventory}: {last_words}", f"see: ansible-inventory -i {play.inventory} --graph")
    return TfctlError(f"Ansible ended early: {last_words}")
