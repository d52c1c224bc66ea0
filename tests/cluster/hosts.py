"""Three hosts on loopback, and tfctl as a user runs it against them.

Each host is a real ssh server whose `sudo -n …/tfctl-node` runs the real node part on a tree of its own. What stands in
for systemd and journald is a fake with behaviour: units are processes, what they print is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback import Sshd
from node_tree import ACCOUNT, HERE, Tree, wait_until

from tfctl.cli import main

#: A task that stays, and ends at once when it is told to.
STAY = 'command: [sh, -c, "echo begun; exec sleep 600"]\n'


@dataclass(frozen=True)
class Done:
    """How a verb ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Its stdout, a JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Hosts:
    """``folder`` is where tfctl is run; job files lie below it, and the inventory. Use as a context manager."""

    def __init__(self, servers: Sequence[Sshd], folder: Path) -> None:
        self.names = [f"node{number}" for number, _ in enumerate(servers, 1)]
        self.inventory = folder / "three.ini"
        self.folder = folder
        self.trees: dict[str, Tree] = {}
        self._servers = dict(zip(self.names, servers, strict=True))

    def __enter__(self) -> Hosts:
        self.trees = {name: Tree() for name in self.names}
        for name in self.names:
            self.heal(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            self.drop(name)
            self.trees[name].__exit__()

    def write_inventory(self) -> None:
        """Addresses are made up: placement rightly refuses loopback, and no task of these tests dials another."""
        lines = [
            f"{name} ansible_host=127.0.0.1 ansible_port={server.port} ansible_user=ops tfctl_address=10.9.0.{number} "
            f"ansible_ssh_private_key_file={server.key_file} "
            f"ansible_ssh_common_args='-o UserKnownHostsFile={server.known_hosts} -o GlobalKnownHostsFile=none'"
            for number, (name, server) in enumerate(self._servers.items(), 1)
        ]
        self.inventory.write_text("\n".join([*lines, "[all:vars]", "tfctl_ports=23400-23499", ""]))

    def file(self, name: str, text: str, **code: str) -> Path:
        """A job file in a folder of its own; strategy custom and stack none. ``code``: scripts beside it."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for script, lines in code.items():
            (folder / script).write_text("#!/bin/sh\n" + textwrap.dedent(lines))
            (folder / script).chmod(0o755)
        path = folder / "job.yaml"
        path.write_text(f"name: {name}\nstrategy: custom\nstack: none\n{textwrap.dedent(text)}")
        return path

    def told(self, name: str, **variables: object) -> Path:
        """An inventory that says other things of one host; nobody is waited for longer than a second."""
        path = self.folder / f"told-{name}.ini"
        more = "".join(f" {key}={value}" for key, value in variables.items())
        text = re.sub(rf"^({name} .*)$", rf"\1{more}", self.inventory.read_text(), flags=re.MULTILINE)
        path.write_text(text.replace("-o GlobalKnownHostsFile", "-o ConnectTimeout=1 -o GlobalKnownHostsFile"))
        return path

    def known_hosts(self, name: str) -> Path:
        return self._servers[name].known_hosts

    def __call__(self, *words: object) -> Done:
        """tfctl in this process, to its end."""
        return self.with_inventory(self.inventory, *words)

    def with_inventory(self, inventory: Path | None, *words: object) -> Done:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main.run([*map(str, words), *(["-i", str(inventory)] if inventory else [])])
        done = Done(code, out.getvalue(), err.getvalue())
        assert "defect" not in done.err, done.err
        return done

    def ok(self, *words: object) -> str:
        """Its stdout; it must succeed."""
        done = self(*words)
        assert done.code == 0, done
        return done.out

    def begin(self, *words: object, patch: str = "") -> Client:
        """tfctl in a process of its own. ``patch``: lines of Python run before, to reach a moment between two steps."""
        script = f"import os, signal, time\n{patch}\nimport sys\nfrom tfctl.cli import main\nmain.main()"
        return Client([sys.executable, "-c", script, *self.words(*words)], self.folder)

    def words(self, *words: object) -> list[str]:
        return [*map(str, words), "-i", str(self.inventory)]

    def status(self, job: str) -> dict[str, Any]:
        return dict(json.loads(self.ok("status", job, "-o", "json")))

    def states(self, job: str) -> dict[str, str]:
        return {f"{task['role']}/{task['index']}": task["state"] for task in self.status(job)["tasks"]}

    def alive(self) -> list[str]:
        """The units that run, as ``worker-0`` of any job, on any host."""
        return sorted(unit for tree in self.trees.values() for unit in tree.alive())

    def left(self, but: str = "") -> list[str]:
        """What starts have left: units that run, files of units, environments and reservations."""
        trees = {name: tree for name, tree in self.trees.items() if name != but}
        found = [f"{name}: {unit} runs" for name, tree in trees.items() for unit in tree.alive()]
        for name, tree in trees.items():
            found += [
                f"{name}: {file}" for file in tree.files() if file.startswith("run/") and file != "run/tfctl/lock"
            ]
        return found

    def untouched(self, but: str = "") -> None:
        """Nothing runs or is reserved, as soon as the hosts have noticed."""
        wait_until(lambda: not self.left(but), lambda: str(self.left(but)), timeout=40)

    def reserved(self, name: str) -> bool:
        """A start is under way there, past its reservation."""
        return any(file.startswith("run/systemd/system/") for file in self.trees[name].files())

    def shown(self, name: str) -> bool:
        """Somebody has asked how its units are."""
        return any(call.startswith("show ") for call in self.trees[name].calls())

    def forget(self, name: str) -> None:
        """What it was asked before now."""
        (self.trees[name] / "manager/calls.log").unlink(missing_ok=True)

    def drop(self, name: str) -> None:
        """Its connections break."""
        self._servers[name].drop()

    def refuse(self, name: str, script: str) -> None:
        """What its `sudo` does instead."""
        self._servers[name].command("sudo", script)

    def heal(self, name: str) -> None:
        """Its `sudo` runs the node part."""
        words = [sys.executable, "-S", str(HERE / "fake_node.py"), str(self.trees[name].path), ACCOUNT, "30"]
        self.refuse(
            name, f'test "$*" = "-n /usr/local/sbin/tfctl-node" || exit 99\nexec env SUDO_USER=ops {" ".join(words)}'
        )

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Its systemd is asked to start units, and does not come back meanwhile."""
        hold = self.trees[name] / "manager/hold-start"
        hold.parent.mkdir(exist_ok=True)
        hold.touch()
        try:
            yield
        finally:
            hold.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[Callable[[], None]]:
        """Another start there is busy with its files, until what is given is called."""
        lock = self.trees[name] / "run/tfctl/lock"
        lock.parent.mkdir(exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file.close


class Client:
    """tfctl as a process. Its output goes to files, so that nobody waits for a reader; use as a context manager."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._out = (folder / f"out.{os.urandom(4).hex()}").open("w+")
        self._err = (folder / f"err.{os.urandom(4).hex()}").open("w+")
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err, start_new_session=True
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(20)
        self._out.close()
        self._err.close()

    @property
    def out(self) -> str:
        return Path(self._out.name).read_text()

    @property
    def err(self) -> str:
        return Path(self._err.name).read_text()

    def until(self, out: str = "", err: str = "") -> None:
        """It has said so."""
        wait_until(lambda: out in self.out and err in self.err, lambda: self.out + self.err, timeout=40)

    def done(self) -> Done:
        """Its end."""
        return Done(self.process.wait(60), self.out, self.err)
