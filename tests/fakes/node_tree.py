"""A node in a temporary directory, the client's end of the wire, and plans to send."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfctl.node import names, wire

HERE = Path(__file__).parent
DROP_IN = HERE.parents[1] / "tfctl/node/10-tfctl.conf"
# As root the jobs' user is another, so that its rights are real.
ACCOUNT = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
RUN = "0123abcd"
#: A command that stays until it is told to end.
STAY = ["sh", "-c", "echo begun; exec sleep 600"]


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


class Tree:
    """Use as a context manager: whatever was started in it is killed at the end."""

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
        os.chown(self / "srv/tfctl", pwd.getpwnam(ACCOUNT).pw_uid, -1)
        (self / "opt/tfctl/stacks/tf2.15").symlink_to("tf2.15-ab")
        (self / names.DROP_IN).parent.mkdir(parents=True)
        shutil.copy(DROP_IN, self / names.DROP_IN)
        for program in ("sh", "sleep", "cat", "date"):
            (self / "usr/bin" / program).symlink_to(f"/bin/{program}")

    def __truediv__(self, path: str) -> Path:
        return self.path / path.lstrip("/")

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        for state in (self / "manager").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                known = json.loads(state.read_text())
                for name in ("supervisor", "MainPID"):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        if int(known.get(name, 0)) > 1:
                            os.killpg(int(known[name]), signal.SIGKILL)
        shutil.rmtree(self.path, ignore_errors=True)

    def talk(self, verb: str = "", *, silence: float = 30.0, account: str = ACCOUNT, **arguments: Any) -> Talk:
        command = [sys.executable, "-S", str(HERE / "fake_node.py"), str(self.path), account, str(silence)]
        talk = Talk(command)
        if verb:
            talk.say(wire.request(verb, **arguments))
        return talk

    def ask(self, verb: str, **arguments: Any) -> Any:
        """The value of the last message of a verb that needs no more than its request."""
        with self.talk(verb, **arguments) as talk:
            return talk.rest()[-1][1]

    def start(self, job: str = "digits", code: bytes | None = None, **more: Any) -> Talk:
        """A start that has said hello."""
        talk = self.talk("start", job=job, code=digest(code), ports=[2222, 2224], resolve=[], **more)
        talk.expect("hello")
        return talk

    def run(self, plan: Mapping[str, Any], code: bytes | None = None) -> None:
        """Start and keep."""
        with self.start(plan["job"], code) as talk:
            reserve(talk, plan, code)
            talk.ask("go", "started")
            talk.ask("keep", "kept")
            assert talk.process.wait(10) == 0

    def states(self, job: str = "digits", attempt: int | None = None) -> dict[str, dict[str, Any]]:
        """STATE by ``worker/0``."""
        [shown] = self.ask("show", job=job, attempt=attempt, follow=False)["jobs"]
        return {names.task(one["role"], one["index"]): one for one in shown["tasks"]}

    def wait_for(self, task: str, state: str, job: str = "digits") -> dict[str, Any]:
        wait_until(lambda: self.states(job)[task]["state"] == state, lambda: str(self.states(job)[task]))
        return self.states(job)[task]

    def files(self) -> list[str]:
        """Every file that the node part could have made. It may be at it: os.walk bears with what goes meanwhile."""
        walks = (walk for top in ("run", "var", "srv") for walk in os.walk(self / top))
        found = [Path(folder, name) for folder, folders, names in walks for name in (*folders, *names)]
        return sorted(str(path.relative_to(self.path)) for path in found if path.is_file() or path.is_symlink())

    def alive(self) -> list[str]:
        """The units that run."""
        states = {}
        for path in (self / "manager").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # a unit that ends well is forgotten
                states[path.name[:-5]] = json.loads(path.read_text())
        return sorted(name for name, one in states.items() if one["ActiveState"] not in ("inactive", "failed"))

    def calls(self) -> list[str]:
        log = self / "manager/calls.log"
        return log.read_text().splitlines() if log.exists() else []


class Talk:
    """The client's end of one conversation."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._rest = b""

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self.process.wait(10)

    def say(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def tell(self, kind: str, value: Any = None) -> None:
        self.say(wire.line(kind, {} if value is None else value))

    def hear(self, timeout: float = 60.0) -> tuple[str, Any] | None:
        """The next message; None at the end, or when there is none in time."""
        assert self.process.stdout
        until = time.monotonic() + timeout
        while b"\n" not in self._rest:
            ready = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return wire.parse(line)

    def expect(self, kind: str) -> Any:
        heard = self.hear()
        assert heard, self.errors()
        assert heard[0] == kind, heard
        return heard[1]

    def ask(self, kind: str, answer: str, value: Any = None) -> Any:
        self.tell(kind, value)
        return self.expect(answer)

    def rest(self) -> list[tuple[str, Any]]:
        """All messages to the end."""
        found = []
        while heard := self.hear():
            found.append(heard)
        return found

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """As a client does, only faster."""
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
        """Close the node's input, as a dead client does; the exit status."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(20)

    def errors(self) -> str:
        assert self.process.stderr
        return self.process.stderr.read().decode() if self.process.poll() is not None else "silence"


def reserve(talk: Talk, plan: Mapping[str, Any], code: bytes | None = None) -> None:
    # All at once: a beat may come between two sayings.
    talk.say(wire.line("plan", plan) + (b"" if code is None else wire.line("code", len(code)) + code))
    talk.expect("reserved")


def refused(talk: Talk, plan: Mapping[str, Any], code: bytes | None = None) -> dict[str, Any]:
    """The ERROR that the plan is refused with."""
    talk.tell("plan", plan)
    if code is not None:
        talk.tell("code", len(code))
        talk.say(code)
    return dict(talk.expect("refused"))


def make_task(
    role: str = "worker", index: int = 0, command: Sequence[str] = STAY, *, job: str = "digits", attempt: int = 1,
    run: str = RUN, ports: Sequence[int] = (), gpus: Sequence[str] = (), env: str = "",
    output: str = "/srv/tfctl/digits", service: str = "Restart=no\n",
) -> dict[str, Any]:  # fmt: skip
    """A task of a plan, with its unit as the client renders it."""
    words = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"' for word in command)
    paths = " ".join(f'"{path}"' for path in names.writable(job, attempt, output))
    unit = (
        f"[Unit]\nDescription=tfctl {job} {role}/{index}\nStartLimitIntervalSec=0\nStartLimitBurst=4\n\n"
        f"[Service]\nType=exec\nSlice={names.job_slice(job)}\nEnvironmentFile={names.env_file(job, role, index)}\n"
        f"UnsetEnvironment=http_proxy https_proxy\nWorkingDirectory={names.code_dir(job, attempt)}\n"
        f"ExecStart=:/usr/bin/env {words}\n"
        f"ExecStopPost={names.END_PROGRAM} {names.task_dir(job, attempt, role, index)}\n{service}"
        f"TimeoutStopSec=500ms\nReadWritePaths={paths}\nLogExtraFields=TFCTL_RUN={run}\nSyslogIdentifier={role}/{index}\n\n"
        f"[X-Tfctl]\nPorts={names.port_list(ports)}\nGpus={' '.join(gpus)}\n"
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
    record = {
        "job": job, "attempt": attempt, "run": run, "started": 1.7e9,
        "tasks": [{"role": one["role"], "index": one["index"], "host": "node1"} for one in chosen],
    }  # fmt: skip
    return {
        "job": job, "attempt": attempt, "run": run, "record": record, "code": digest(code), "output": output,
        "stack": stack, "tasks": list(chosen),
    }  # fmt: skip


def tarball(files: Mapping[str, str] | None = None, *members: tarfile.TarInfo) -> bytes:
    """A tar.gz of these files (executable when they begin with #!), and of members without content."""
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
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until, f"not within {timeout} s: {what()}"
        time.sleep(0.02)
