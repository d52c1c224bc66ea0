"""A node in a temporary directory, the client's end of a session, and plans to send."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import importlib
import io
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fake_manager import directives
from fake_supervisor import entry, shown
from fork_server import PipedProcess, fork_server

from tfctl.node import names, wire
from tfctl.node import session as node_session
from tfctl.node.system import System

HERE = Path(__file__).parent
DROP_IN = HERE.parents[1] / "tfctl/node/10-tfctl.conf"
# As root the jobs' user is another, so that its rights are real.
ACCOUNT = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
RUN = "0123abcd"
#: Where the kernel shows its boot ID.
BOOT_ID = "proc/sys/kernel/random/boot_id"
#: A command that runs until SIGTERM ends it.
STAY = ["sh", "-c", "echo begun; exec sleep 600"]


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


class Tree:
    """The file system of a node. A context manager that kills everything that was started on it."""

    def __init__(self) -> None:
        # Not pytest's tmp_path, which another user may not enter.
        self.path = Path(tempfile.mkdtemp(prefix="tfctl-node-"))
        self.path.chmod(0o755)
        for name in (
            "run/systemd/system",
            "var/lib/tfctl/home",
            "srv/tfctl",
            "usr/bin",
            "opt/tfctl/stacks/tf2.15-ab/bin",
        ):
            (self / name).mkdir(parents=True)
        # What journald writes when it starts: its journal is older than every job.
        now = time.time_ns()
        first = {"__CURSOR": f"s=f0;i={now:x}", "__REALTIME_TIMESTAMP": str(now // 1000), "MESSAGE": "Journal started",
                 "_TRANSPORT": "driver", "_SYSTEMD_UNIT": "systemd-journald.service"}  # fmt: skip
        (self / "journal.jsonl").write_text(json.dumps(first) + "\n")
        os.chown(self / "srv/tfctl", pwd.getpwnam(ACCOUNT).pw_uid, -1)
        (self / "opt/tfctl/stacks/tf2.15").symlink_to("tf2.15-ab")
        (self / names.DROP_IN).parent.mkdir(parents=True)
        shutil.copy(DROP_IN, self / names.DROP_IN)
        (self / BOOT_ID).parent.mkdir(parents=True)
        (self / BOOT_ID).write_text(f"{uuid.uuid4()}\n")
        for program in ("sh", "sleep", "cat", "date", "rm", "mkdir"):
            (self / "usr/bin" / program).symlink_to(f"/bin/{program}")

    def __truediv__(self, path: str) -> Path:
        return self.path / path.lstrip("/")

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self._cut_power()
        shutil.rmtree(self.path, ignore_errors=True)

    def lose_power(self) -> None:
        """Boot again after a power loss: nothing could end in an orderly way, and what was in memory is gone."""
        self._cut_power()
        self._boot()

    def reboot(self) -> None:
        """Reboot as `systemctl reboot` does: systemd stops every unit first."""
        alive = self.alive()
        if alive:
            self.systemctl("stop", *alive)
        wait_until(lambda: not self.alive())
        self._boot()

    def systemctl(self, *words: str) -> None:
        """Run systemctl, as an administrator does."""
        command = fork_server().command(str(HERE / "fake_systemctl.py"), str(self.path), *words)
        subprocess.run(command, check=True, timeout=20)

    def _cut_power(self) -> None:
        for state in (self / "manager").glob("*.state"):
            with contextlib.suppress(FileNotFoundError):
                known = directives(state.read_text())
                for name in ("supervisor", "MainPID"):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        if int(known.get(name, 0)) > 1:
                            os.killpg(int(known[name]), signal.SIGKILL)

    def _boot(self) -> None:
        for place in ("run", "manager", "sys"):
            shutil.rmtree(self / place, ignore_errors=True)
        (self / "run/systemd/system").mkdir(parents=True)
        (self / BOOT_ID).write_text(f"{uuid.uuid4()}\n")

    def session(self, verb: str = "", *, silence: float = 30.0, account: str = ACCOUNT, **arguments: Any) -> Session:
        session = Session(str(HERE / "fake_node.py"), str(self.path), account, str(silence))
        if verb:
            session.say(request(verb, **arguments))
        return session

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Return the value of the last answer to a request that needs no further message."""
        with self.session(verb, **arguments) as session:
            return session.rest()[-1][1]

    def start(self, job: str = "digits", code: bytes | None = None, **more: Any) -> Session:
        """Open a session to start a job, and wait for its hello."""
        session = self.session("start", job=job, code=digest(code), ports=[2222, 2224], resolve=[], **more)
        session.expect("hello")
        return session

    def run(self, plan: Mapping[str, Any], code: bytes | None = None) -> None:
        """Start a job and let it run without a client."""
        with self.start(plan["job"], code) as session:
            reserve(session, plan, code)
            session.ask("go", "started")
            session.ask("keep", "kept")
            assert session.process.wait(10) == 0

    def states(self, job: str = "digits", attempt: int | None = None) -> dict[str, dict[str, Any]]:
        """Return the status of each task by its name."""
        [shown] = self.ask("show", job=job, attempt=attempt, follow=False)["jobs"]
        return {names.task(one["role"], one["index"]): one for one in shown["tasks"]}

    def wait_for(self, task: str, state: str, job: str = "digits") -> dict[str, Any]:
        wait_until(lambda: self.states(job)[task]["state"] == state, lambda: str(self.states(job)[task]))
        return self.states(job)[task]

    def files(self) -> list[str]:
        """Return every file that the node part could have made. os.walk tolerates files that are deleted meanwhile."""
        walks = (walk for top in ("run", "var", "srv") for walk in os.walk(self / top))
        found = [Path(folder, name) for folder, folders, names in walks for name in (*folders, *names)]
        return sorted(str(path.relative_to(self.path)) for path in found if path.is_file() or path.is_symlink())

    def alive(self) -> list[str]:
        """Return the units that run."""
        states = {}
        for path in (self / "manager").glob("*.state"):
            with contextlib.suppress(FileNotFoundError):  # the unit succeeded, so its state was removed
                states[path.stem] = directives(path.read_text())
        return sorted(name for name, one in states.items() if one["ActiveState"] not in ("inactive", "failed"))

    def entries(self) -> list[dict[str, Any]]:
        """What the journal has, oldest first."""
        return [json.loads(line) for line in (self / "journal.jsonl").read_text().splitlines()]

    def log(self, unit: str, message: bytes) -> None:
        """Log as a program of this unit does by the journal's own protocol: a message of any bytes, up to 32 MB."""
        run = next(one["TFCTL_RUN"] for one in reversed(self.entries()) if one.get("_SYSTEMD_UNIT") == unit)
        fields = {"_SYSTEMD_UNIT": unit, "_TRANSPORT": "journal", "TFCTL_RUN": run}
        with (self / "journal.jsonl").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(entry(shown(message), fields))

    def vacuum(self, message: str) -> None:
        """journald deletes the entries before the first one with this message."""
        with (self / "journal.jsonl").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            entries = file.read().splitlines(keepends=True)
            kept = next(number for number, entry in enumerate(entries) if json.loads(entry)["MESSAGE"] == message)
            file.seek(0)
            file.writelines(entries[kept:])
            file.truncate()

    @contextlib.contextmanager
    def dropping(self) -> Iterator[None]:
        """journald drops what units print, and says so before the next line of each."""
        (self / "journald").mkdir(exist_ok=True)
        (self / "journald/dropping").touch()
        try:
            yield
        finally:
            (self / "journald/dropping").unlink()

    def calls(self) -> list[str]:
        log = self / "manager/calls.log"
        return log.read_text().splitlines() if log.exists() else []


class Session:
    """The client's end of a session."""

    def __init__(self, *words: str) -> None:
        self.process = PipedProcess(*words)
        self._rest = b""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self.process.wait(10)

    def say(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def tell(self, kind: str, value: Any = None) -> None:
        self.say(line(kind, {} if value is None else value))

    def hear(self, timeout: float = 60.0) -> tuple[str, Any] | None:
        """Return the next message, or None at the end of the output or after the timeout."""
        until = time.monotonic() + timeout
        while b"\n" not in self._rest:
            ready = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not data:
                return None
            self._rest += data
        found, _, self._rest = self._rest.partition(b"\n")
        [(kind, value)] = json.loads(found).items()
        return kind, value

    def expect(self, kind: str) -> Any:
        heard = self.hear()
        while heard == ("beat", {}):  # a slow machine takes longer than a heartbeat
            heard = self.hear()
        assert heard, self.errors()
        assert heard[0] == kind, heard
        return heard[1]

    def ask(self, kind: str, answer: str, value: Any = None) -> Any:
        self.tell(kind, value)
        return self.expect(answer)

    def rest(self) -> list[tuple[str, Any]]:
        """Return all messages up to the end of the output."""
        found = []
        while heard := self.hear():
            found.append(heard)
        return found

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Send heartbeats during the block, more often than a real client."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(0.1):
                self.tell("beat")

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def hang_up(self) -> int:
        """Close the node's stdin, as happens when a client dies; return the exit status."""
        self.process.stdin.close()
        return self.process.wait(20)

    def errors(self) -> str:
        return self.process.stderr.read().decode() if self.process.poll() is not None else "silence"


class Listener(node_session.NodeSession):
    """The node's end of a session in this process: it keeps what is sent, and its client says nothing."""

    def __init__(self) -> None:
        super().__init__(os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
        self.heard: list[wire.NodeMessage] = []

    def send(self, message: wire.NodeMessage) -> None:
        self.heard.append(wire.node_message(wire.line(message)))

    def read_output(self, process: subprocess.Popen[bytes], said: IO[bytes], limit: float) -> str:  # noqa: ARG002
        errors = said.read().decode()
        process.wait(20)
        return errors


def answers(tree: Tree, asked: wire.Request) -> list[wire.NodeMessage]:
    """Return what the node part of the tree answers, in this process: for requests that need no systemd."""
    listener, verb = Listener(), next(verb for verb, kind in wire.REQUESTS.items() if kind is type(asked))
    system = System(prefix=str(tree.path), account=ACCOUNT)
    importlib.import_module(f"tfctl.node.verbs.{verb}").run(system, listener, asked)
    return listener.heard


def request(verb: str, **fields: Any) -> bytes:
    """Return the first line of a client, a request of the current protocol."""
    return (json.dumps({"protocol": wire.PROTOCOL, "verb": verb, **fields}) + "\n").encode()


def line(kind: str, value: Any) -> bytes:
    """Encode a message, which may be malformed."""
    return (json.dumps({kind: value}) + "\n").encode()


def reserve(session: Session, plan: Mapping[str, Any], code: bytes | None = None) -> None:
    # Sent at once, because another thread may send a heartbeat between two calls.
    session.say(line("plan", plan) + (b"" if code is None else line("code", {"size": len(code)}) + code))
    session.expect("reserved")


def refused(session: Session, plan: Mapping[str, Any], code: bytes | None = None) -> dict[str, Any]:
    """Send a plan that must be refused; return the error."""
    session.tell("plan", plan)
    if code is not None:
        session.tell("code", {"size": len(code)})
        session.say(code)
    return dict(session.expect("refused")["error"])


def restrictions(section: str) -> str:
    """Return the lines of a section of the drop-in, which each unit repeats."""
    (found,) = [part for part in DROP_IN.read_text().split("[") if part.startswith(f"{section}]")]
    lines = found.splitlines()[1:]
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def make_task(
    role: str = "worker", index: int = 0, command: Sequence[str] = STAY, *, job: str = "digits", attempt: int = 1,
    run: str = RUN, ports: Sequence[int] = (), gpus: Sequence[str] = (), env: str = "",
    output: str = "/srv/tfctl/digits", service: str = "Restart=no\n", deadline: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a task of a plan, with its unit as the client renders it."""
    words = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"' for word in command)
    paths = " ".join(f'"{path}"' for path in names.writable(job, attempt, output))
    unit = (
        f"[Unit]\nDescription=tfctl {job} {role}/{index}\nStartLimitIntervalSec=infinity\nStartLimitBurst=4\n"
        f"{restrictions('Unit')}\n"
        f"[Service]\nType=exec\nSlice={names.job_slice(job)}\nEnvironmentFile={names.env_file(job, role, index)}\n"
        f"UnsetEnvironment=http_proxy https_proxy\nWorkingDirectory={names.code_dir(job, attempt)}\n"
        f"ExecStartPre=-{names.NOTE_PROGRAM} begin {names.task_dir(job, attempt, role, index)} %b\n"
        f"ExecStart=:/usr/bin/env {words}\n"
        f"ExecStop=-{names.NOTE_PROGRAM} stop {names.task_dir(job, attempt, role, index)}\n"
        f"ExecStopPost={names.END_PROGRAM} {names.task_dir(job, attempt, role, index)}\n{service}"
        f"KillMode=mixed\nTimeoutStopSec=500ms\nReadWritePaths={paths}\n"
        f"LogExtraFields=TFCTL_RUN={run}\nSyslogIdentifier={role}/{index}\n{restrictions('Service')}\n"
        f"[X-Tfctl]\nPorts={names.port_list(ports)}\nGpus={' '.join(gpus)}\n"
        + (f"Deadline={deadline}\n" if deadline else "")
    )
    return {
        "role": role, "index": index, "ports": list(ports), "gpus": list(gpus), "program": command[0], "unit": unit,
        "env": 'PATH="/opt/tfctl/stacks/tf2.15/bin:/usr/bin"\nPYTHONUNBUFFERED="1"\n' + env,
    }  # fmt: skip


def make_plan(
    *tasks: Mapping[str, Any], job: str = "digits", attempt: int = 1, run: str = RUN, code: bytes | None = None,
    output: str = "/srv/tfctl/digits", stack: str = "none",
) -> dict[str, Any]:  # fmt: skip
    chosen = tasks or (make_task(job=job, attempt=attempt, run=run, output=output),)
    tasks_of_all = [
        {"role": one["role"], "index": one["index"], "host": "node1", "address": "10.9.0.1", "port": 2222,
         "unit": names.unit(job, one["role"], one["index"]), "gpus": one["gpus"]}
        for one in chosen
    ]  # fmt: skip
    record = {
        "job": job, "attempt": attempt, "run": run, "strategy": "custom", "stack": stack, "inventory": "/i.ini",
        "output": output, "started": 1.7e9, "tasks": tasks_of_all,
        "policy": {"clean": "running", "max_restarts": 0, "deadline": None, "grace": 30, "drain": 600},
        "deciders": [[one["role"], one["index"]] for one in chosen],
    }  # fmt: skip
    if code is not None:
        record["code"] = digest(code)
    return {
        "job": job, "attempt": attempt, "run": run, "record": record, "code": digest(code), "output": output,
        "stack": stack, "tasks": list(chosen),
    }  # fmt: skip


def guarded(attempt: int = 1, run: str = RUN, **guard: Any) -> dict[str, Any]:
    """Return the plan of a job that has a guard and one host."""
    plan = make_plan(make_task(attempt=attempt, run=run), attempt=attempt, run=run)
    recorded = {"head": "node1", "address": "10.9.0.1", "port": 0, "origin": RUN, "lease": 600, "max_attempts": 2}
    plan["record"]["guard"] = {**recorded, "number": attempt, **guard}
    return {**plan, "guard": {"key": "a" * 64}}


def as_guard(tree: Tree, verb: str, unit: str = names.guard_service("digits"), **arguments: Any) -> Session:
    """Open a session with the node part over the socket of the guard. ``unit``: that of the process that does so."""
    session = Session(str(HERE / "fake_guard_client.py"), str(tree.path), unit, "digits")
    session.say(request(verb, job="digits", **arguments))
    return session


def tarball(files: Mapping[str, str] | None = None, *members: tarfile.TarInfo) -> bytes:
    """Return a tar.gz of these files (executable if they begin with #!) and of members without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in (files or {}).items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o755 if text.startswith("#!") else 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
        for info in members:
            tar.addfile(info)
    return gzip.compress(buffer.getvalue(), mtime=0)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def digest(code: bytes | None) -> str | None:
    return None if code is None else hashlib.sha256(code).hexdigest()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: Callable[[], str] = lambda: "", timeout: float = 60.0) -> None:
    """Wait until the condition holds. ``what`` describes the state for the error after ``timeout`` seconds."""
    until = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < until, f"not within {timeout} s: {what()}"
        # Some conditions run a command on three hosts. Leave most of the processor to what the test waits for.
        time.sleep(max(0.02, min(1.0, 4 * (now - began))))
