"""The verbs of fake_systemctl. Units that run have a process of fake_supervisor.

It imports little, because the tests call systemctl thousands of times.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

DROP_IN = "etc/systemd/system/tfctl-.service.d/10-tfctl.conf"
BLANK = {
    "ActiveState": "inactive", "SubState": "dead", "Result": "success", "ExecMainCode": "0", "ExecMainStatus": "0",
    "InvocationID": "", "ExecMainStartTimestampMonotonic": "0", "ExecMainExitTimestampMonotonic": "0",
    "ControlGroup": "", "NRestarts": "0",
}  # fmt: skip
ENDED = ("inactive", "failed")


def has_drop_in(unit: str) -> bool:
    """Return whether the drop-in applies to a unit of this name (systemd.unit(5))."""
    return unit.startswith("tfctl-") and unit.endswith(".service")


class Manager:
    def __init__(self, tree: str) -> None:
        self.tree = Path(tree)
        self.home = self.tree / "manager"
        self.home.mkdir(exist_ok=True)

    def file(self, name: str) -> dict[str, str] | None:
        """The directives of the unit file and of the drop-in, which wins. None when there is no unit file."""
        try:
            lines = (self.tree / "run/systemd/system" / name).read_text().splitlines()
        except FileNotFoundError:
            return None
        if has_drop_in(name):
            with suppress(FileNotFoundError):
                lines += (self.tree / DROP_IN).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def state(self, name: str) -> dict[str, str]:
        try:
            return {**BLANK, **json.loads((self.home / f"{name}.json").read_text())}
        except FileNotFoundError:
            return dict(BLANK)

    def update(self, name: str, **changes: object) -> None:
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


def start(manager: Manager, units: list[str]) -> int:
    """Start units concurrently. Return when each has been executed or could not be."""
    from fake_supervisor import begin

    status, waiting = 0, {}
    for unit in units:
        if manager.file(unit) is None:
            print(f"Failed to start {unit}: Unit {unit} not found.", file=sys.stderr)
            status = 5
            continue
        manager.stopping(unit).unlink(missing_ok=True)
        waiting[unit] = begin(manager, unit)
    hold = manager.home / "hold-start"
    while hold.exists():
        time.sleep(0.01)
    for unit, pipe in waiting.items():
        if os.read(pipe, 16) != b"ok":
            print(f"Job for {unit} failed because the control process exited with error code.", file=sys.stderr)
            status = 1
    return status


def stop(manager: Manager, units: list[str], wait: bool = True) -> None:
    undying = (manager.home / "undying").exists()  # as what hangs in a file system
    for unit in units:
        if manager.state(unit)["ActiveState"] not in ENDED and not (undying and has_drop_in(unit)):
            manager.stopping(unit).touch()
    while wait and any(manager.state(unit)["ActiveState"] not in ENDED for unit in units):
        time.sleep(0.005)


def restart(manager: Manager, units: list[str]) -> int:
    """Restart units. Each has a job (Job=) until it runs again."""
    for unit in units:
        manager.order(unit).touch()
    stop(manager, units)
    while (manager.home / "hold-restart").exists():
        time.sleep(0.01)
    status = start(manager, units)
    for unit in units:
        manager.order(unit).unlink(missing_ok=True)
    return status


def kill(manager: Manager, units: list[str], name: str) -> None:
    import signal

    if (manager.home / "undying").exists():
        return
    for unit in units:
        with suppress(OSError):
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
    dropped_in = drop_in.exists() and has_drop_in(unit)
    everything = {
        **manager.state(unit), "Id": unit, "LoadState": "loaded" if known else "not-found", "NeedDaemonReload": "no",
        "DropInPaths": f"/{DROP_IN}" if dropped_in else "",
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
    if (manager.home / "silent").exists():
        print("Failed to connect to bus: Connection refused", file=sys.stderr)
        return 1
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
    elif verb == "stop" and not units[0].endswith(".slice"):
        stop(manager, units, wait="--no-block" not in options)
    elif verb == "kill":
        kill(manager, units, options[0].split("=")[1])
    elif verb == "reset-failed":
        reset(manager, units)
    elif verb not in ("daemon-reload", "stop"):
        raise SystemExit(f"the fake has no {verb}")
    return 0
