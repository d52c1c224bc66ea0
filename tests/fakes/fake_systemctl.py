"""A service manager in one directory, spoken to as systemctl: `fake_systemctl.py TREE show|start|stop|kill|…`.

Enough of systemd to start, restart, kill and forget units for real. Each running unit has a supervisor process, as
PID 1 would be: it starts the command, keeps its output in the tree's journal, writes cgroup.procs, runs ExecStopPost=
and restarts. State: TREE/manager/UNIT.json. Units are read from TREE/run/systemd/system. TREE/manager/calls.log has the
calls.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

END = Path(__file__).parents[2] / "tfctl/node/bin/end"
DROP_IN = "etc/systemd/system/tfctl-.service.d/10-tfctl.conf"
BLANK = {
    "ActiveState": "inactive", "SubState": "dead", "Result": "success", "ExecMainCode": "0", "ExecMainStatus": "0",
    "InvocationID": "", "ExecMainStartTimestampMonotonic": "0", "ExecMainExitTimestampMonotonic": "0",
    "ControlGroup": "",
}  # fmt: skip
ENDED = ("inactive", "failed")
#: sd-messages(3), SD_MESSAGE_UNIT_STARTED
STARTED = "39f53479d3a045ac8e11786248231fbf"


class Manager:
    def __init__(self, tree: str) -> None:
        self.tree = Path(tree)
        self.home = self.tree / "manager"
        self.home.mkdir(exist_ok=True)

    def file(self, name: str) -> dict[str, str] | None:
        """The unit file's directives; None when there is none."""
        try:
            lines = (self.tree / "run/systemd/system" / name).read_text().splitlines()
        except FileNotFoundError:
            return None
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def state(self, name: str) -> dict[str, str]:
        try:
            return {**BLANK, **json.loads((self.home / f"{name}.json").read_text())}
        except FileNotFoundError:
            return dict(BLANK)

    def update(self, name: str, **changes: Any) -> None:
        state = {**self.state(name), **{key: str(value) for key, value in changes.items()}}
        temporary = self.home / f"{name}.{os.getpid()}"
        temporary.write_text(json.dumps(state))
        temporary.replace(self.home / f"{name}.json")

    def stopping(self, name: str) -> Path:
        return self.home / f"{name}.stop"

    def order(self, name: str) -> Path:
        return self.home / f"{name}.order"

    def group(self, name: str) -> Path:
        return self.tree / "sys/fs/cgroup/systemd/tfctl.slice" / name

    def at(self, path: str) -> Path:
        return self.tree / path.lstrip("/")

    def log(self, unit: str, fields: dict[str, str], message: bytes) -> None:
        with (self.tree / "journal.jsonl").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            cursor = f"s=f0;i={sum(1 for _ in file):x}"
            record = {"__CURSOR": cursor, "__REALTIME_TIMESTAMP": str(time.time_ns() // 1000), "_SYSTEMD_UNIT": unit,
                      "_TRANSPORT": "stdout", "MESSAGE": _shown(message), **fields}  # fmt: skip
            file.write(json.dumps(record) + "\n")


def _shown(message: bytes) -> Any:
    """As journalctl's JSON has it: what is not printable, or no UTF-8, is a list of its bytes."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return list(message)
    return text if all(char.isprintable() or char == "\t" for char in text) else list(message)


def supervise(manager: Manager, name: str, ready: int) -> None:
    """Be PID 1 for one unit, until it has ended for good."""
    unit = manager.file(name) or {}
    restarts = 0
    while True:
        result = _once(manager, name, unit, ready)
        ready = -1
        again = result not in ("success", "resources") and unit["Restart"] == "on-failure"
        if again and not manager.stopping(name).exists() and restarts < int(unit.get("StartLimitBurst", "5")) - 1:
            restarts += 1
            manager.update(name, ActiveState="activating", SubState="auto-restart")
            until = time.monotonic() + _seconds(unit.get("RestartSec", "100ms"))
            while time.monotonic() < until and not manager.stopping(name).exists():
                time.sleep(0.005)
            if not manager.stopping(name).exists():
                continue
            result = "success"
        manager.stopping(name).unlink(missing_ok=True)
        over = "inactive" if result == "success" else "failed"
        manager.update(name, ActiveState=over, SubState="dead" if over == "inactive" else "failed", ControlGroup="")
        if over == "inactive":  # systemd forgets all of a unit that ended well
            (manager.home / f"{name}.json").unlink()
        return


def _once(manager: Manager, name: str, unit: dict[str, str], ready: int) -> str:
    """One run of the unit, to the end of its ExecStopPost=; systemd's name for how it went."""
    fields = dict([unit["LogExtraFields"].split("=", 1)])
    manager.update(name, ActiveState="activating", SubState="start", InvocationID=uuid.uuid4().hex)
    try:
        environment = _environment(manager, unit)
    except FileNotFoundError:
        manager.update(name, Result="resources")
        _tell(ready, "failed")
        return "resources"
    if unit["Type"] == "simple":  # started as soon as it is forked
        _tell(ready, "ok")
    environment["INVOCATION_ID"] = manager.state(name)["InvocationID"]
    status = _cannot(manager, unit)
    began = time.monotonic_ns() // 1000
    if status:
        manager.log(name, fields, b"systemd cannot execute it: status %d" % status)
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
    manager.group(name).mkdir(parents=True, exist_ok=True)
    (manager.group(name) / "cgroup.procs").write_text(f"{process.pid}\n")
    manager.update(name, ActiveState="active", SubState="running", Result="success", MainPID=process.pid,
                   ExecMainStartTimestampMonotonic=began, ExecMainExitTimestampMonotonic=0,
                   ControlGroup=f"/tfctl.slice/{name}")  # fmt: skip
    started = {"_SYSTEMD_UNIT": "init.scope", "_PID": "1", "UNIT": name, "MESSAGE_ID": STARTED,
               "INVOCATION_ID": environment["INVOCATION_ID"]}  # fmt: skip
    manager.log(name, started, f"Started {name}.".encode())
    if unit["Type"] != "simple":
        _tell(ready, "ok")
    result = _watch(manager, name, unit, process, reader, fields)
    code, status = (1, process.returncode) if process.returncode >= 0 else (2, -process.returncode)
    return _stop_post(manager, name, unit, environment, result, code, status)


def _cannot(manager: Manager, unit: dict[str, str]) -> int:
    """systemd.exec(5): 200 no working directory, 226 no such directory to write to."""
    if not manager.at(unit["WorkingDirectory"]).is_dir():
        return 200
    return 0 if all(manager.at(path).is_dir() for path in shlex.split(unit["ReadWritePaths"])) else 226


def _watch(
    manager: Manager, name: str, unit: dict[str, str], process: subprocess.Popen[bytes], reader: int,
    fields: dict[str, str],
) -> str:  # fmt: skip
    """Until the command has ended; systemd's name for how."""
    os.set_blocking(reader, False)
    rest, asked, killed = b"", 0.0, False
    while True:
        over = process.poll() is not None
        with contextlib.suppress(BlockingIOError):
            while data := os.read(reader, 65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    manager.log(name, fields, line)
        if over:
            break
        if not asked and manager.stopping(name).exists():
            asked = time.monotonic()
            manager.update(name, ActiveState="deactivating", SubState="stop-sigterm")
            process.terminate()
        if asked and not killed and time.monotonic() - asked > _seconds(unit["TimeoutStopSec"]):
            killed = True
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.005)
    os.close(reader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # KillMode=mixed
    if killed:
        return "timeout"
    if process.returncode in (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGPIPE):
        return "success"
    return "signal" if process.returncode < 0 else "exit-code"


def _stop_post(
    manager: Manager, name: str, unit: dict[str, str], environment: dict[str, str], result: str, code: int, status: int
) -> str:
    manager.update(name, ActiveState="deactivating", SubState="stop-post", Result=result, ExecMainCode=code,
                   ExecMainStatus=status, ExecMainExitTimestampMonotonic=time.monotonic_ns() // 1000)  # fmt: skip
    told = {"SERVICE_RESULT": result, "EXIT_CODE": "exited" if code == 1 else "killed",
            "EXIT_STATUS": str(status) if code == 1 else signal.Signals(status).name[3:]}  # fmt: skip
    if not _cannot(manager, unit):  # what keeps the command from its execution keeps this too
        directory = unit["ExecStopPost"].split()[1]
        subprocess.run([str(END), str(manager.at(directory))], env={**environment, **told}, timeout=10)
    with contextlib.suppress(OSError):
        (manager.group(name) / "cgroup.procs").unlink()
        manager.group(name).rmdir()
    return result


def _environment(manager: Manager, unit: dict[str, str]) -> dict[str, str]:
    """The environment file's, with every directory of PATH in the tree."""
    text = manager.at(unit["EnvironmentFile"]).read_text()
    found = {
        name: re.sub(r'\\([\\"`$])', r"\1", value)
        for name, value in re.findall(r'(?ms)^(\w+)="((?:[^"\\]|\\.)*)"$', text)
    }
    path = found.get("PATH", "/usr/bin")
    return {**found, "PATH": ":".join(f"{manager.tree}{folder}" for folder in path.split(":"))}


def _seconds(span: str) -> float:
    return float(span[:-2]) / 1000 if span.endswith("ms") else float(span.rstrip("s"))


def _tell(ready: int, word: str) -> None:
    if ready >= 0:
        with contextlib.suppress(BrokenPipeError):  # whoever asked has been killed
            os.write(ready, word.encode())
        os.close(ready)


def start(manager: Manager, units: list[str]) -> int:
    """All begin at once; it returns when each was executed, or could not be."""
    status, waiting = 0, {}
    for unit in units:
        if manager.file(unit) is None:
            print(f"Failed to start {unit}: Unit {unit} not found.", file=sys.stderr)
            status = 5
            continue
        manager.stopping(unit).unlink(missing_ok=True)
        waiting[unit] = _fork(manager, unit)
    hold = manager.home / "hold-start"
    while hold.exists():
        time.sleep(0.01)
    for unit, pipe in waiting.items():
        if os.read(pipe, 16) != b"ok":
            print(f"Job for {unit} failed because the control process exited with error code.", file=sys.stderr)
            status = 1
    return status


def _fork(manager: Manager, unit: str) -> int:
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.close(ours)
        manager.update(unit, supervisor=os.getpid())
        try:
            supervise(manager, unit, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    return ours


def stop(manager: Manager, units: list[str]) -> None:
    if (manager.home / "undying").exists():  # as what hangs in a file system
        return
    for unit in units:
        if manager.state(unit)["ActiveState"] not in ENDED:
            manager.stopping(unit).touch()


def restart(manager: Manager, units: list[str]) -> int:
    """Each has an order (Job=) until it runs anew, also while it does not run."""
    for unit in units:
        manager.order(unit).touch()
    stop(manager, units)
    while any(manager.state(unit)["ActiveState"] not in ENDED for unit in units):
        time.sleep(0.01)
    while (manager.home / "hold-restart").exists():
        time.sleep(0.01)
    status = start(manager, units)
    for unit in units:
        manager.order(unit).unlink(missing_ok=True)
    return status


def kill(manager: Manager, units: list[str], name: str) -> None:
    if (manager.home / "undying").exists():
        return
    for unit in units:
        with contextlib.suppress(OSError):
            for pid in (manager.group(unit) / "cgroup.procs").read_text().split():
                os.killpg(int(pid), signal.Signals[name])


def reset(manager: Manager, units: list[str]) -> None:
    for unit in units:
        if manager.state(unit)["ActiveState"] in ENDED:
            (manager.home / f"{unit}.json").unlink(missing_ok=True)


def shown(manager: Manager, unit: str, wanted: list[str]) -> list[str]:
    known = manager.file(unit) is not None or manager.state(unit)["ActiveState"] != "inactive"
    place = f"/run/systemd/system/{unit}" if known else ""
    other = manager.home / f"{unit}.from"  # a unit of that name from another place
    if other.exists():
        known, place = True, other.read_text()
    drop_in = manager.tree / DROP_IN
    everything = {
        **manager.state(unit), "Id": unit, "LoadState": "loaded" if known else "not-found", "NeedDaemonReload": "no",
        "DropInPaths": f"/{DROP_IN}" if drop_in.exists() else "",
        "FragmentPath": place, "Job": "7" if manager.order(unit).exists() else "",
    }  # fmt: skip
    return [f"{name}={everything[name]}" for name in wanted]


def main() -> int:
    manager = Manager(sys.argv[1])
    words = [word for word in sys.argv[2:] if word not in ("--no-pager", "--no-ask-password", "--")]
    if "--version" in words:
        version = manager.home / "version"
        print(f"systemd {version.read_text() if version.exists() else '252'} (252.39-1)")
        return 0
    options = [word for word in words if word.startswith("--")]
    verb, *units = [word for word in words if not word.startswith("--")]
    with (manager.home / "calls.log").open("a") as log:
        log.write(" ".join([verb, *units]) + "\n")
    if verb == "show":
        wanted = options[0].split("=", 1)[1].split(",")
        print("\n\n".join("\n".join(shown(manager, unit, wanted)) for unit in units))
    elif verb == "start":
        return start(manager, units)
    elif verb == "restart":
        return restart(manager, units)
    elif verb == "stop" and units[0].endswith(".service"):
        stop(manager, units)
    elif verb == "kill":
        kill(manager, units, options[0].split("=")[1])
    elif verb == "reset-failed":
        reset(manager, units)
    elif verb not in ("daemon-reload", "stop"):
        raise SystemExit(f"the fake has no {verb}")
    return 0


sys.exit(main())
