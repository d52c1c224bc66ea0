"""The process of a unit that runs under fake_systemctl, as PID 1 would be."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fake_manager import Manager

PROGRAMS = Path(__file__).parents[2] / "tfctl/node/bin"
NODE = Path(__file__).parent / "fake_node.py"
#: How often (s) to look for the file that asks a unit to stop.
LOOK_S = 0.02
#: The default of journald.conf(5), in bytes.
LINE_MAX = 48 * 1024
#: sd-messages(3), SD_MESSAGE_UNIT_STARTED
STARTED = "39f53479d3a045ac8e11786248231fbf"
#: SD_MESSAGE_JOURNAL_DROPPED
DROPPED = "a596d6fe7bfa4994828e72309e95d61e"


def begin(manager: Manager, units: Sequence[str]) -> dict[str, int]:
    """Start the processes of units and timers. Return a pipe for each, from which to read `ok` or `failed`.

    A process of its own does it, because PID 1 starts all of them even if systemctl is killed meanwhile. It holds the
    lock until each unit is activating, because PID 1 serves one request after the other.
    """
    pipes = {unit: os.pipe() for unit in units}
    with manager.lock():
        pid = os.fork()
        if pid == 0:
            os.setsid()
            for unit, (_, theirs) in pipes.items():
                manager.stopped(unit)
                _fork(manager, unit, _work_of(unit), theirs)
            os._exit(0)
    for _, theirs in pipes.values():
        os.close(theirs)
    os.waitpid(pid, 0)
    return {unit: ours for unit, (ours, _) in pipes.items()}


def _work_of(unit: str) -> Callable[[Manager, str, int], None]:
    """Return what the process of a unit does."""
    if unit.startswith("tfctlguard"):
        from fake_guard_units import work_of

        return work_of(unit)
    if unit.startswith("tfctl-EXEC-"):
        from fake_exec_unit import run_once

        return run_once
    return wait_and_fire if unit.endswith(".timer") else supervise


def _fork(manager: Manager, unit: str, work: Callable[[Manager, str, int], None], ready: int) -> None:
    """Start the process of a unit, which is activating from now on. ``ready``: the pipe to which it writes, or -1."""
    manager.update(unit, ActiveState="activating", SubState="start")
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.closerange(3, max(3, ready))
        os.closerange(max(3, ready + 1), 4096)
        manager.update(unit, supervisor=os.getpid())
        try:
            work(manager, unit, ready)
        finally:
            os._exit(0)


def supervise(manager: Manager, name: str, ready: int) -> None:
    """Supervise one unit, as PID 1 does, until it will not be restarted."""
    unit = manager.file(name) or {}
    restarts = 0
    while True:
        result = _once(manager, name, unit, ready)
        ready = -1
        again = result not in ("success", "resources") and unit["Restart"] == "on-failure"
        again = again or _status(manager, name) in unit.get("RestartForceExitStatus", "").split()
        again = again and _status(manager, name) not in unit.get("RestartPreventExitStatus", "").split()
        limited = unit.get("StartLimitIntervalSec") != "0"  # systemd.unit(5): 0 disables the limit
        may = not limited or restarts < int(unit.get("StartLimitBurst", "5")) - 1
        if again and not manager.stopping(name):
            manager.update(name, ActiveState="activating", SubState="auto-restart")
            until = time.monotonic() + seconds(unit.get("RestartSec", "100ms"))
            while time.monotonic() < until and not manager.stopping(name):
                time.sleep(0.005)
            if manager.stopping(name):
                result = "success"
            else:  # systemd looks at its limit only now, and counts the restart that it prevents
                restarts += 1
                manager.update(name, NRestarts=restarts)
                if may:
                    continue
        manager.stopped(name)
        # Change the state once: whoever waits for the end may start the unit again at once.
        if result == "success":  # systemd forgets all of a unit that ended well
            manager.forget(name)
        else:
            manager.update(name, ActiveState="failed", SubState="failed", ControlGroup="")
        return


def wait_and_fire(manager: Manager, name: str, ready: int) -> None:
    """Supervise a timer until it is stopped. It stays active when it has elapsed, and does not elapse again."""
    unit = manager.file(name) or {}
    manager.update(name, ActiveState="active", SubState="waiting")
    _tell(ready, "ok")
    until = time.monotonic() + seconds(unit["OnActiveSec"])
    while not manager.stopping(name):
        time.sleep(LOOK_S)
        if time.monotonic() > until and manager.state(name)["SubState"] == "waiting":
            manager.update(name, SubState="elapsed")
            _fork(manager, name.replace(".timer", ".service"), run_program, -1)
    manager.stopped(name)
    manager.forget(name)


def run_program(manager: Manager, name: str, ready: int) -> None:
    """Run a Type=oneshot service of root, whose only program is tfctl-node, and repeat it until it succeeds."""
    unit = manager.file(name) or {}
    _tell(ready, "ok")
    manager.stopped(name)
    while True:
        manager.update(name, ActiveState="activating", SubState="start")
        words = [sys.executable, "-S", str(NODE), manager.tree, "nobody", "30", *unit["ExecStart"].split()[1:]]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        while process.poll() is None:
            time.sleep(0.005)
            if manager.stopping(name):
                process.terminate()
        assert process.stderr
        for line in process.stderr.read().splitlines():
            _print(manager, name, {}, line)
        until = time.monotonic() + seconds(unit["RestartSec"])
        manager.update(name, SubState="auto-restart")
        while process.returncode and not manager.stopping(name) and time.monotonic() < until:
            time.sleep(0.005)
        if not process.returncode or manager.stopping(name):
            break
    manager.stopped(name)
    manager.forget(name)


def _status(manager: Manager, name: str) -> str:
    """Return how the last run ended, in the form of systemd.service(5): ``7`` or ``SIGTERM``."""
    state = manager.state(name)
    number = int(state["ExecMainStatus"])
    return str(number) if state["ExecMainCode"] == "1" else signal.Signals(number).name


def _once(manager: Manager, name: str, unit: dict[str, str], ready: int) -> str:
    """Run the unit once, including ExecStopPost=. Return systemd's name for the result."""
    fields = dict([unit["LogExtraFields"].split("=", 1)])
    manager.update(name, ActiveState="activating", SubState="start", InvocationID=uuid.uuid4().hex)
    try:
        environment = environment_of(manager, unit)
    except FileNotFoundError:
        manager.update(name, Result="resources")
        _tell(ready, "failed")
        return "resources"
    if unit["Type"] == "simple":  # started as soon as it is forked
        _tell(ready, "ok")
    environment["INVOCATION_ID"] = manager.state(name)["InvocationID"]
    _run(manager, unit, "ExecStartPre", environment)
    status = _cannot(manager, unit)
    began = time.monotonic_ns() // 1000
    if status:
        _print(manager, name, fields, b"systemd cannot execute it: status %d" % status)
        manager.update(name, ExecMainStartTimestampMonotonic=began)
        ended = _stop_post(manager, name, unit, environment, "exit-code", 1, status)
        if unit["Type"] != "simple":
            _tell(ready, "failed")
        return ended
    words = shlex.split(unit["ExecStart"].lstrip(":").replace("%%", "%"))
    reader, writer = os.pipe()
    process = subprocess.Popen(
        words, cwd=manager.at(unit["WorkingDirectory"]), env=environment, stdin=subprocess.DEVNULL, stdout=writer,
        stderr=writer, start_new_session=True,
    )  # fmt: skip
    os.close(writer)
    group = Path(manager.group(name))
    group.mkdir(parents=True, exist_ok=True)
    (group / "cgroup.procs").write_text(f"{process.pid}\n")
    manager.update(name, ActiveState="active", SubState="running", Result="success", MainPID=process.pid,
                   ExecMainStartTimestampMonotonic=began, ExecMainExitTimestampMonotonic=0,
                   ControlGroup=f"/tfctl.slice/{name}")  # fmt: skip
    started = {"_SYSTEMD_UNIT": "init.scope", "_PID": "1", "UNIT": name, "MESSAGE_ID": STARTED,
               "INVOCATION_ID": environment["INVOCATION_ID"]}  # fmt: skip
    _print(manager, name, started, f"Started {name}.".encode())
    if unit["Type"] != "simple":
        _tell(ready, "ok")
    os.set_blocking(reader, False)
    output = Output(manager, name, fields, reader)
    result = _watch(manager, name, unit, process, output, environment)
    code, status = (1, process.returncode) if process.returncode >= 0 else (2, -process.returncode)
    if unit.get("KillMode") == "mixed":
        _kill_group(process.pid, signal.SIGKILL)
    result = _stop_post(manager, name, unit, environment, result, code, status)
    _final_sigterm(manager, name, process.pid, seconds(unit["TimeoutStopSec"]), output)
    with contextlib.suppress(OSError):
        (group / "cgroup.procs").unlink()
        group.rmdir()
    return result


def _cannot(manager: Manager, unit: dict[str, str]) -> int:
    """Return the exit status of systemd.exec(5): 200 without a working directory, 226 without a directory to write."""
    if not Path(manager.at(unit["WorkingDirectory"])).is_dir():
        return 200
    return 0 if all(Path(manager.at(path)).is_dir() for path in shlex.split(unit["ReadWritePaths"])) else 226


class Output:
    """What a unit's processes print, on its way to the journal."""

    def __init__(self, manager: Manager, name: str, fields: dict[str, str], reader: int) -> None:
        self._manager, self._name, self._fields, self._reader, self._rest = manager, name, fields, reader, b""
        self._ended = False

    def wait(self, process: int) -> None:
        """Wait for output, the end of the process of this descriptor, or the next look for a request to stop."""
        select.select([process] if self._ended else [process, self._reader], [], [], LOOK_S)

    def forward(self) -> None:
        """Write the lines that have been printed to the journal."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reader, 65536):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    _print(self._manager, self._name, self._fields, line)
            self._ended = True

    def close(self) -> None:
        self.forward()
        os.close(self._reader)


def _watch(
    manager: Manager, name: str, unit: dict[str, str], process: subprocess.Popen[bytes], output: Output,
    environment: dict[str, str],
) -> str:  # fmt: skip
    """Until the command has ended; systemd's name for how."""
    asked, killed = 0.0, False
    descriptor = os.pidfd_open(process.pid)
    while True:
        over = process.poll() is not None
        output.forward()
        if over:
            break
        if not asked and manager.stopping(name):
            asked = time.monotonic()
            manager.update(name, ActiveState="deactivating", SubState="stop")
            told = {"MAINPID": str(process.pid), "SERVICE_RESULT": "success"}
            _run(manager, unit, "ExecStop", {**environment, **told})
            manager.update(name, SubState="stop-sigterm")
            if unit.get("KillMode") == "mixed":
                process.terminate()
            else:  # control-group, the default of systemd.kill(5)
                _kill_group(process.pid, signal.SIGTERM)
        if asked and not killed and time.monotonic() - asked > seconds(unit["TimeoutStopSec"]):
            killed = True
            _kill_group(process.pid, signal.SIGKILL)
        output.wait(descriptor)
    os.close(descriptor)
    if killed:
        return "timeout"
    if process.returncode == -signal.SIGKILL and Path(manager.home, "out-of-memory").exists():
        return "oom-kill"  # OOMPolicy=stop
    if process.returncode in (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE):
        if not asked:
            _run(manager, unit, "ExecStop", {**environment, "SERVICE_RESULT": "success"})
        return "success"
    return "signal" if process.returncode < 0 else "exit-code"


def _stop_post(
    manager: Manager, name: str, unit: dict[str, str], environment: dict[str, str], result: str, code: int, status: int
) -> str:
    manager.update(name, ActiveState="deactivating", SubState="stop-post", Result=result, ExecMainCode=code,
                   ExecMainStatus=status, ExecMainExitTimestampMonotonic=time.monotonic_ns() // 1000)  # fmt: skip
    told = {"SERVICE_RESULT": result, "EXIT_CODE": "exited" if code == 1 else "killed",
            "EXIT_STATUS": str(status) if code == 1 else signal.Signals(status).name[3:]}  # fmt: skip
    if not _run(manager, unit, "ExecStopPost", {**environment, **told}) and result == "success":
        result = "exit-code"
        manager.update(name, Result=result)
    return result


def _final_sigterm(manager: Manager, name: str, group: int, grace: float, output: Output) -> None:
    """End what the main process has left, once ExecStopPost= has run: SIGTERM, then SIGKILL after the grace period."""
    manager.update(name, SubState="final-sigterm")
    left, until = _kill_group(group, signal.SIGTERM), time.monotonic() + grace
    while left and time.monotonic() < until:
        output.forward()
        time.sleep(0.005)
        left = _kill_group(group, 0)
    _kill_group(group, signal.SIGKILL)
    output.close()


def _kill_group(group: int, number: int) -> bool:
    """Send a signal to all processes of a unit. Return whether there are any."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _run(manager: Manager, unit: dict[str, str], key: str, environment: dict[str, str]) -> bool:
    """Run the program of tfctl in this line, if the unit has one, with %b replaced by the boot ID.

    Return whether nothing failed.
    """
    if key not in unit:
        return True
    if _cannot(manager, unit):  # what keeps the command from its execution keeps this too
        return False
    program, *words = unit[key].lstrip("-").split()
    boot = Path(manager.at("proc/sys/kernel/random/boot_id")).read_text().strip().replace("-", "")
    words = [manager.at(word) if word.startswith("/") else word.replace("%b", boot) for word in words]
    return subprocess.run([str(PROGRAMS / Path(program).name), *words], env=environment, timeout=10).returncode == 0


def environment_of(manager: Manager, unit: dict[str, str]) -> dict[str, str]:
    """Return the variables of the environment file, with every directory of PATH moved into the tree."""
    text = Path(manager.at(unit["EnvironmentFile"])).read_text()
    found = {
        name: re.sub(r'\\([\\"`$])', r"\1", value)
        for name, value in re.findall(r'(?ms)^(\w+)="((?:[^"\\]|\\.)*)"$', text)
    }
    path = found.get("PATH", "/usr/bin")
    return {**found, "PATH": ":".join(f"{manager.tree}{folder}" for folder in path.split(":"))}


def seconds(span: str) -> float:
    return float(span[:-2]) / 1000 if span.endswith("ms") else float(span.rstrip("s"))


def _tell(ready: int, word: str) -> None:
    if ready >= 0:
        with contextlib.suppress(BrokenPipeError):  # whoever asked has been killed
            os.write(ready, word.encode())
        os.close(ready)


def _print(manager: Manager, unit: str, fields: dict[str, str], message: bytes) -> None:
    """Print a line. journald splits it at LineMax=."""
    *pieces, last = [message[start : start + LINE_MAX] for start in range(0, len(message) or 1, LINE_MAX)]
    for piece in pieces:
        _store(manager, unit, {**fields, "_LINE_BREAK": "line-max"}, piece)
    _store(manager, unit, fields, last)


def _store(manager: Manager, unit: str, fields: dict[str, str], message: bytes) -> None:
    """Write an entry. It waits in a queue while journald is stopped (fake_journalctl).

    While journald drops lines, it counts them. Their number is written before the unit's next line
    (journald.conf(5), RateLimitBurst=).
    """
    tree = Path(manager.tree)
    stopped = (tree / "journald/stopped").exists()
    dropped = tree / f"journald/{unit}.dropped"
    with (tree / ("journald/queue.jsonl" if stopped else "journal.jsonl")).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        count = int(dropped.read_text()) if dropped.exists() else 0
        if (tree / "journald/dropping").exists():
            dropped.write_text(str(count + 1))
            return
        if count:
            dropped.unlink()
            driver = {"_SYSTEMD_UNIT": "systemd-journald.service", "_TRANSPORT": "driver", "MESSAGE_ID": DROPPED,
                      "N_DROPPED": str(count), "OBJECT_SYSTEMD_UNIT": unit}  # fmt: skip
            file.write(entry(f"Suppressed {count} messages from {unit}", driver))
        file.write(entry(shown(message), {"_SYSTEMD_UNIT": unit, "_TRANSPORT": "stdout", **fields}))


def entry(message: Any, fields: dict[str, str]) -> str:
    """A line of journalctl's JSON. The number in the cursor only rises."""
    now = time.time_ns()
    stamps = {"__CURSOR": f"s=f0;i={now:x}", "__REALTIME_TIMESTAMP": str(now // 1000)}
    return json.dumps({**stamps, "MESSAGE": message, **fields}) + "\n"


def shown(message: bytes) -> Any:
    """Return a value as in journalctl's JSON: a list of bytes if it has control characters or is not UTF-8."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return list(message)
    return list(message) if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) else text
