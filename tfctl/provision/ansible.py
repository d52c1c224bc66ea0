"""Run one of tfctl's playbooks in a child process: report events while it runs, and a summary at the end.

ansible-core is run, never imported. The plugin plugins/callback/events.py sends its events through a
pipe that the child inherits. A second pipe, once it closes, signals to the plugin that this process was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tfctl
from tfctl.errors import BadFile, TfctlError
from tfctl.model.host import Inventory
from tfctl.provision.ansible_environment import FORKS, environment
from tfctl.provision.events import Collector, Event, Message
from tfctl.provision.remedies import remedy_for
from tfctl.provision.results import PlayResult
from tfctl.provision.role_variables import inventory_variables
from tfctl.provision.run_folder import GRACE_S, RunFolder, run_folder
from tfctl.remote import inventory, inventory_faults, inventory_sources

_NO_HOSTS = ("inventory", "no hosts", "host pattern", "--limit")


def collections_dir() -> Path:
    """Return the directory in which Ansible finds the collection: inside the installed package, or beside it in a
    checkout."""
    package = Path(tfctl.__file__).resolve().parent
    inside = package / "_ansible"
    return inside if inside.is_dir() else package.parent / "collections"


def collection(collections: Path) -> Path:
    """Return the directory of the collection tfctl.cluster, which contains playbooks/, roles/ and plugins/."""
    return collections / "ansible_collections/tfctl/cluster"


def data_dir() -> Path:
    """Return the directory of tfctl's own collection: in a checkout, its root."""
    return collection(collections_dir()).resolve()


@dataclass(frozen=True)
class Play:
    """A run of a playbook: its name in playbooks/, and what ansible-playbook is given. ``inventory`` may be several.

    ``limit`` is a host pattern. ``variables`` override those of the inventory. ``become_password`` is for sudo.
    ``collections``: the directory in which Ansible finds the collection. ``known``: what tfctl itself has read of the
    inventory, if it can use it.
    """

    playbook: str
    inventory: Path
    limit: str | None = None
    tags: tuple[str, ...] = ()
    check: bool = False
    diff: bool = False
    variables: Mapping[str, object] = field(default_factory=dict)
    become_password: str | None = field(default=None, repr=False)
    collections: Path = field(default_factory=collections_dir)
    known: Inventory | None = None


def run(play: Play, listen: Callable[[Event], None]) -> PlayResult:
    """Run ``play`` on all its hosts, call ``listen`` with each event, and return the result of every host.

    Raises BadFile for an inventory that cannot be read or has no such hosts, TfctlError if Ansible itself fails, and
    KeyboardInterrupt, once Ansible has ended, for Ctrl-C and SIGTERM.
    """
    inventory.require(play.inventory)
    collector = Collector(inventory_variables(collection(play.collections) / "roles"))
    with _terminated_as_interrupted(), run_folder(play.become_password) as folder:
        with (folder.path / "output").open("w+", encoding="utf-8", errors="replace") as output:
            status = _run(play, folder, output.fileno(), lambda message: _report(collector, message, listen))
            output.seek(0)
            printed = output.read()
        folder.on_hosts = collector.worked or not collector.finished
    if not collector.finished:
        raise _early_end(play, printed, status)
    result = collector.result()
    if not result.hosts:
        raise BadFile(
            f"{play.inventory}: no hosts in it", "an inventory has one host a line: node1 ansible_host=10.0.0.1"
        )
    return result


def _report(collector: Collector, message: Message, listen: Callable[[Event], None]) -> None:
    for event in collector.take(message):
        listen(event)


def _run(play: Play, folder: RunFolder, output: int, handle: Callable[[Message], None]) -> int:
    """Run ansible-playbook, call ``handle`` with each message of the plugin, and return the exit status."""
    reader, writer = os.pipe()
    alive, alive_end = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as events, os.fdopen(alive_end, "wb"):
        try:
            child = subprocess.Popen(
                _command(play, folder),
                env=environment(play.collections, folder, writer, alive, play.tags),
                pass_fds=(writer, alive),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(writer)
            os.close(alive)
        with _terminated(child):
            _send(child, play.become_password)
            for line in events:
                handle(json.loads(line))
            return child.wait()


def _send(child: subprocess.Popen[bytes], password: str | None) -> None:
    """Write the password, if there is one, to the stdin of Ansible, where no other process can read it."""
    assert child.stdin
    with contextlib.suppress(BrokenPipeError), child.stdin as stdin:
        stdin.write((password or "").encode())


def _command(play: Play, folder: RunFolder) -> list[str]:
    local = _local_hosts(play.known) if play.known else ""
    if local:
        folder.local_hosts.write_text(local)
    variables = folder.path / "variables.json"
    variables.write_text(json.dumps(play.variables))
    playbook = collection(play.collections) / "playbooks" / f"{play.playbook}.yml"
    # -P: a file ansible.py or yaml.py in the current directory is not imported.
    words = [sys.executable, "-P", "-m", "ansible", "playbook", str(playbook)]
    words += [word for source in inventory_sources.split(play.inventory) for word in ("--inventory", source)]
    words += ["--inventory", str(folder.local_hosts)] if local else []
    words += ["--forks", str(FORKS), "--extra-vars", f"@{variables}"]
    words += ["--limit", play.limit] if play.limit else []
    words += ["--check"] if play.check else []
    words += ["--become-password-file", "-"] if play.become_password else []
    return words + (["--diff"] if play.diff else [])


def _local_hosts(known: Inventory) -> str:
    """Return an inventory of the local hosts alone, with the addresses at which tfctl has found that the other hosts
    reach them, or "" if there is none."""
    hosts = [host for host in known.hosts if host.is_local]
    return "".join(f"{host.name}{f' tfctl_address={host.address}' if host.address else ''}\n" for host in hosts)


@contextlib.contextmanager
def _terminated(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """End Ansible and all its child processes when the block is left, for any reason."""
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
def _terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: Ansible runs in its own session and would continue. Only the main thread can do this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _reason(output: str, status: int) -> str:
    """Return the error messages in Ansible's own output, else its last line, else its exit status."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("[ERROR]: ") for line in lines if line.startswith("[ERROR]")]
    return "\n".join(errors or lines[-1:]) or f"exit {status}"


def _early_end(play: Play, output: str, status: int) -> TfctlError:
    """Return the error for a run without a summary."""
    if inventory_faults.is_of_inventory(output):
        return inventory_faults.refusal(play.inventory, inventory_sources.paths(play.inventory), output)
    reason = _reason(output, status)
    if any(word in reason.lower() for word in _NO_HOSTS):
        return BadFile(f"{play.inventory}: {reason}", f"see: ansible-inventory -i {play.inventory} --graph")
    found = remedy_for(reason)
    return TfctlError(f"Ansible ended early: {reason}", found.naming("this machine") if found else "")
