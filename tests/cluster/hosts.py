"""Three hosts on loopback, and tfctl as a user runs it against them.

Each host is a real ssh server whose `sudo -n …/tfctl-node` runs the real node part on its own directory tree. Fakes
replace systemd and journald: units are real processes, and their output is stored.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fork_server import Process, fork_server
from loopback import Forked, Relay, Sshd, forget_files, public
from node_tree import ACCOUNT, HERE, Tree, wait_until

from tfctl.cli import main

#: The program that `python -m tfctl` runs.
TFCTL = Path(main.__file__).parents[1] / "__main__.py"
#: A task that runs until SIGTERM ends it.
STAY = 'command: [sh, -c, "echo begun; exec sleep 600"]\n'


@dataclass(frozen=True)
class Done:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Return the JSON objects on stdout, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Hosts:
    """Three hosts. tfctl runs in ``folder``, which contains the inventory and the job files. A context manager."""

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
        """Write an inventory with invented addresses: placement refuses loopback, and no task connects to another."""
        lines = [
            f"{name} ansible_host=127.0.0.1 ansible_port={server.port} ansible_user=ops tfctl_address=10.9.0.{number} "
            f"ansible_ssh_private_key_file={server.key_file} "
            f"ansible_ssh_common_args='-o UserKnownHostsFile={server.known_hosts} -o GlobalKnownHostsFile=none'"
            for number, (name, server) in enumerate(self._servers.items(), 1)
        ]
        self.inventory.write_text("\n".join([*lines, "[all:vars]", "tfctl_ports=23400-23499", ""]))

    def file(self, name: str, text: str, **code: str) -> Path:
        """Write a job file in its own directory, with strategy custom and stack none. ``code``: scripts beside it."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for script, lines in code.items():
            (folder / script).write_text("#!/bin/sh\n" + textwrap.dedent(lines))
            (folder / script).chmod(0o755)
        path = folder / "job.yaml"
        path.write_text(f"name: {name}\nstrategy: custom\nstack: none\n{textwrap.dedent(text)}")
        return path

    def install_horovod(self, *names: str) -> None:
        """Add Horovod to the stack tf2.15 of these hosts, as the role horovod does."""
        for name in names:
            packages = self.trees[name] / "opt/tfctl/stacks/tf2.15-ab/lib/python3.11/site-packages"
            packages.mkdir(parents=True, exist_ok=True)
            (packages / "tfctl-horovod.pth").write_text("/opt/tfctl/horovod/0123456789abcdef\n")

    def install_stack(self, name: str, environment: str) -> None:
        """Give a host another environment of the stack tf2.15."""
        stacks = self.trees[name] / "opt/tfctl/stacks"
        (stacks / environment / "bin").mkdir(parents=True, exist_ok=True)
        (stacks / "tf2.15").unlink()
        (stacks / "tf2.15").symlink_to(environment)

    def install_packages(self, name: str, directory: str) -> None:
        """Add the packages of a requirements file, as the role requirements does."""
        folder = self.trees[name] / directory
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tfctl-requirements.json").write_text("{}")

    def told(self, name: str, *, timeout: int | None = None, **variables: object) -> Path:
        """Write an inventory with more variables for one host, and with this timeout of its connections (s): without
        one, 1 s where nothing is expected to answer, which is at another port, and tfctl's default elsewhere."""
        path = self.folder / f"told-{name}.ini"
        more = "".join(f" {key}={value}" for key, value in variables.items())
        if limit := timeout or ("ansible_port" in variables and 1):
            more += f" ansible_ssh_extra_args='-o ConnectTimeout={limit}'"
        path.write_text(re.sub(rf"^({name} .*)$", rf"\1{more}", self.inventory.read_text(), flags=re.MULTILINE))
        return path

    def local(self, name: str) -> tuple[Path, Path]:
        """Write an inventory in which this host is the machine that tfctl runs on. Return it, and the directory of its
        `sudo`, for PATH: tfctl must not run as root."""
        path = self.folder / f"local-{name}.ini"
        made = rf"{name} ansible_connection=local \1"
        text = self.inventory.read_text()
        path.write_text(re.sub(rf"^{name} .*(tfctl_address=\S+) .*$", made, text, flags=re.MULTILINE))
        self.refuse(name, (self._servers[name].bin / "sudo").read_text())
        return path, self._servers[name].bin

    def without(self, name: str) -> Path:
        """Write an inventory that lacks this host."""
        path = self.folder / f"without-{name}.ini"
        lines = self.inventory.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith(f"{name} ")))
        return path

    @contextlib.contextmanager
    def behind_relay(self, name: str) -> Iterator[Relay]:
        """Reach this host through a network that can fail, during the block."""
        server, before = self._servers[name], self.inventory
        with contextlib.closing(Relay(server.port)) as relay:
            known = server.known_hosts.read_text()
            server.known_hosts.write_text(f"{known}[127.0.0.1]:{relay.port} {public(server.key)}\n")
            forget_files()
            self.inventory = self.told(name, timeout=3, ansible_port=relay.port)
            try:
                yield relay
            finally:
                self.inventory = before
                server.known_hosts.write_text(known)

    def known_hosts(self, name: str) -> Path:
        return self._servers[name].known_hosts

    def __call__(self, *words: object) -> Done:
        """Run tfctl in this process, to its end."""
        return self.with_inventory(self.inventory, *words)

    def with_inventory(self, inventory: Path | None, *words: object) -> Done:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main.run(_with_inventory(words, inventory))
        done = Done(code, out.getvalue(), err.getvalue())
        assert "this is a bug in tfctl" not in done.err, done.err
        return done

    def ok(self, *words: object) -> str:
        """Run tfctl, which must succeed; return its stdout."""
        done = self(*words)
        assert done.code == 0, done
        return done.out

    def begin(self, *words: object, out: int | None = None) -> Client:
        """Start tfctl in its own process. ``out``: the descriptor that is its stdout, in place of a file."""
        return Client(self.words(*words), self.folder, out)

    def words(self, *words: object) -> list[str]:
        return _with_inventory(words, self.inventory)

    def status(self, job: str, *, with_ages: bool = False) -> dict[str, Any]:
        """Return the job's status, without the ages of last lines unless they are asked for: they always change."""
        found = dict(json.loads(self.ok("status", job, "-o", "json")))
        for task in found["tasks"]:
            if not with_ages:
                del task["last_line_age"]
        return found

    def states(self, job: str) -> dict[str, str]:
        return {f"{task['role']}/{task['index']}": task["state"] for task in self.status(job)["tasks"]}

    def alive(self) -> list[str]:
        """Return the names of the tasks' units that run on any host."""
        return sorted(unit for tree in self.trees.values() for unit in tree.alive() if unit.startswith("tfctl-"))

    def left(self, but: str = "") -> list[str]:
        """Return what starts have left: running units, and files of units, environments and reservations."""
        trees = {name: tree for name, tree in self.trees.items() if name != but}
        found = [f"{name}: {unit} runs" for name, tree in trees.items() for unit in tree.alive()]
        for name, tree in trees.items():
            found += [
                f"{name}: {file}" for file in tree.files() if file.startswith("run/") and file != "run/tfctl/lock"
            ]
        return found

    def untouched(self, but: str = "") -> None:
        """Wait until nothing runs and nothing is reserved on any host."""
        wait_until(lambda: not self.left(but), lambda: str(self.left(but)), timeout=40)

    def reserved(self, name: str) -> bool:
        """Return whether a start has made its reservation on this host."""
        return any(file.startswith("run/systemd/system/") for file in self.trees[name].files())

    def shown(self, name: str) -> bool:
        """Return whether its systemd has been asked for the state of units."""
        return any(call.startswith("show ") for call in self.trees[name].calls())

    def forget(self, name: str) -> None:
        """Delete the log of the calls of its systemd."""
        (self.trees[name] / "manager/calls.log").unlink(missing_ok=True)

    def drop(self, name: str) -> None:
        """Break all connections to this host."""
        self._servers[name].drop()

    def sessions(self, name: str) -> int:
        """Return how many commands its sshd runs at this moment: each has a channel of its own."""
        return len(self._servers[name].serving)

    def logins(self, name: str) -> int:
        """Return how many connections to its sshd have logged in so far."""
        return self._servers[name].logins

    def age(self, name: str) -> None:
        """Let its node part be one that does not know states among the lines that are followed."""
        self._run_node(name, *_proxy("strip", "client", "states", self._fault(name)))

    def break_logs(self, name: str) -> None:
        """Let its node part fail to read the journal."""
        script = self.folder / "broken-journal.sh"
        error = json.dumps({"error": {"exit": 1, "message": f"journalctl on {name} ended with status 1"}})
        script.write_text(
            f"read -r first\ncase $first in *'\"verb\":\"logs\"'*) echo '{error}'; exit;; esac\n"
            '{ printf \'%s\\n\' "$first"; exec cat; } | "$@"\n'
        )
        self._run_node(name, "sh", str(script))

    def slow_down(self, name: str) -> None:
        """Let its node part start as slowly as Python does on many a host."""
        script = self.folder / "slow.sh"
        script.write_text('sleep 0.5\nexec "$@"\n')
        self._run_node(name, "sh", str(script))

    def refuse(self, name: str, script: str) -> None:
        """Replace its `sudo` by a shell script."""
        self._servers[name].forked.clear()
        self._servers[name].command("sudo", script)

    def lie(self, name: str, *listed: dict[str, object]) -> None:
        """Let it answer each `pull` with this listing, and send `evil` as the content of every file."""
        file = self.folder / f"listed-{name}.json"
        file.write_text(json.dumps(listed))
        self._run_node(name, *fork_server().command(str(HERE / "fake_liar.py"), str(file)))

    def heal(self, name: str) -> None:
        """Let its `sudo` run the node part again."""
        self._run_node(name)

    @contextlib.contextmanager
    def lingering(self, name: str) -> Iterator[None]:
        """Let sessions that begin during the block end only after it, as on a host that is busy."""
        hold, script = self._fault(name), self.folder / f"lingering-{name}.sh"
        hold.touch()
        script.write_text(f'"$@"\nstatus=$?\nwhile test -e {hold}; do sleep 0.1; done\nexit $status\n')
        self._run_node(name, "sh", str(script))
        try:
            yield
        finally:
            hold.unlink()
            self.heal(name)

    @contextlib.contextmanager
    def undoing(self, *words: object) -> Iterator[Client]:
        """Run a command that starts tasks on all three hosts, until node1 takes its time to undo its part, because the
        connection to node2 has broken."""

        def starts() -> int:
            return sum(call.startswith("start ") for call in self.trees["node2"].calls())

        before = starts()
        with self.held("node2"), self.lingering("node1"), self.begin(*words) as client:
            wait_until(lambda: starts() > before and len(self.alive()) == 3)
            self.drop("node2")
            wait_until(lambda: not self.trees["node1"].alive())
            yield client

    def hurry(self, name: str, silence: int) -> None:
        """Let its node part take a client that is silent for so many seconds for gone."""
        self._run_node(name, silence=silence)

    def lose(self, name: str, kind: str) -> None:
        """Lose the client's first message or request of this kind, and end the session there."""
        self._run_node(name, *_proxy("lose", "client", kind, self._fault(name)))

    @contextlib.contextmanager
    def delayed(
        self, name: str, kind: str, side: str = "client"
    ) -> Iterator[tuple[Callable[[], bool], Callable[[], None]]]:
        """Hold the messages of this kind. Yield functions that tell whether one has arrived and that release them."""
        hold = self._fault(name)
        hold.write_text("")
        self._run_node(name, *_proxy("hold", side, kind, hold))
        try:
            yield lambda: hold.read_text() == "reached", hold.unlink
        finally:
            hold.unlink(missing_ok=True)
            self.heal(name)

    @contextlib.contextmanager
    def late(self, name: str, kind: str) -> Iterator[tuple[Callable[[], None], Callable[[], object]]]:
        """Yield functions that begin and end to hold the messages of this kind. Sessions that begin after the first
        call are not affected."""
        hold = self._fault(name)
        self._run_node(name, *_proxy("hold", "node", kind, hold))

        def begin() -> None:
            hold.write_text("")
            self.heal(name)

        try:
            yield begin, hold.unlink
        finally:
            hold.unlink(missing_ok=True)
            self.heal(name)

    @contextlib.contextmanager
    def stalled(self, names: Sequence[str], side: str, kind: str) -> Iterator[Callable[[], bool]]:
        """Forward nothing from this message of this side on. Yield a function: has it arrived on all of the hosts?"""
        files = {name: self._fault(name) for name in names}
        for name, file in files.items():
            self._run_node(name, *_proxy("stall", side, kind, file))
        try:
            yield lambda: all(file.exists() for file in files.values())
        finally:
            for name, file in files.items():
                file.unlink(missing_ok=True)
                self.heal(name)

    def _fault(self, name: str) -> Path:
        """Return a new file for a proxy. That of an earlier session may still write to its own."""
        return self.folder / f"fault-{name}-{os.urandom(4).hex()}"

    def _run_node(self, name: str, *proxy: str, silence: int = 30) -> None:
        node = [str(HERE / "fake_node.py"), str(self.trees[name].path), ACCOUNT, str(silence)]
        words = " ".join([*proxy, *fork_server().command(*node)])
        self.refuse(name, f'test "$*" = "-n /usr/local/sbin/tfctl-node" || exit 99\nSUDO_USER=ops exec {words}')
        if not proxy:
            self._servers[name].forked["sudo -n /usr/local/sbin/tfctl-node"] = Forked(node, {"SUDO_USER": "ops"})

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Make its systemd hang when it starts units, during the block."""
        hold = self.trees[name] / "manager/hold-start"
        hold.parent.mkdir(exist_ok=True)
        hold.touch()
        try:
            yield
        finally:
            hold.unlink(missing_ok=True)

    def release(self, name: str) -> None:
        """End what `held` does before the end of its block."""
        (self.trees[name] / "manager/hold-start").unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[Callable[[], None]]:
        """Hold the lock of the node part. Yield a function that releases it."""
        lock = self.trees[name] / "run/tfctl/lock"
        lock.parent.mkdir(exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file.close


class Client:
    """tfctl as a process. Its output goes to files, so that it never blocks. A context manager that kills it.

    ``program``: another one, which runs tfctl with these words.
    """

    def __init__(self, words: Sequence[str], folder: Path, out: int | None = None, program: Path = TFCTL) -> None:
        self._out = (folder / f"out.{os.urandom(4).hex()}").open("w+")
        self._err = (folder / f"err.{os.urandom(4).hex()}").open("w+")
        with Path(os.devnull).open() as nothing:
            streams = [nothing.fileno(), out or self._out.fileno(), self._err.fileno()]
            self.process = Process(fork_server("client"), [str(program), *words], streams, folder=folder)

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
        """Wait until these texts are on stdout and stderr."""
        wait_until(lambda: out in self.out and err in self.err, lambda: self.out + self.err, timeout=40)

    def done(self) -> Done:
        """Wait for the end of the process."""
        return Done(self.process.wait(60), self.out, self.err)


def _with_inventory(words: Sequence[object], inventory: Path | None) -> list[str]:
    """Add the option. What follows ``--`` is a command for the hosts."""
    found = [*map(str, words)]
    end = found.index("--") if "--" in found else len(found)
    return [*found[:end], *(["-i", str(inventory)] if inventory else []), *found[end:]]


def _proxy(mode: str, side: str, kind: str, file: Path) -> list[str]:
    return fork_server().command(str(HERE / "fake_proxy.py"), mode, side, kind, str(file))
