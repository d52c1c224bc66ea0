"""The verbs of fake_systemctl. Units that run have a process of fake_supervisor.

The tests call systemctl thousands of times. So this module imports little: pathlib and json alone take longer to import
than Python takes to start.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

DROP_IN = "etc/systemd/system/tfctl-.service.d/10-tfctl.conf"
BLANK = {
    "ActiveState": "inactive", "SubState": "dead", "Result": "success", "ExecMainCode": "0", "ExecMainStatus": "0",
    "InvocationID": "", "ExecMainStartTimestampMonotonic": "0", "ExecMainExitTimestampMonotonic": "0",
    "ControlGroup": "", "NRestarts": "0",
}  # fmt: skip
ENDED = ("inactive", "failed")
#: Options that change nothing here.
QUIET = ("--no-pager", "--no-ask-password", "--")


def has_drop_in(unit: str) -> bool:
    """Return whether the drop-in applies to a unit of this name (systemd.unit(5))."""
    return unit.startswith("tfctl-") and unit.endswith(".service")


class Manager:
    """The state of a tree. Its paths are strings."""

    def __init__(self, tree: str) -> None:
        self.tree = tree
        self.home = f"{tree}/manager"
        os.makedirs(self.home, exist_ok=True)

    def file(self, name: str) -> dict[str, str] | None:
        """The directives of the unit file and of the drop-in, which wins. None when there is no unit file."""
        text = read(f"{self.tree}/run/systemd/system/{name}")
        if text is None:
            return None
        dropped_in = read(f"{self.tree}/{DROP_IN}") if has_drop_in(name) else None
        return directives(f"{text}\n{dropped_in or ''}")

    def state(self, name: str) -> dict[str, str]:
        return {**BLANK, **directives(read(f"{self.home}/{name}.state") or "")}

    def update(self, name: str, **changes: object) -> None:
        state = {**self.state(name), **changes}
        temporary = f"{self.home}/{name}.{os.getpid()}"
        with open(temporary, "w") as file:
            file.writelines(f"{key}={value}\n" for key, value in state.items())
        os.replace(temporary, f"{self.home}/{name}.state")

    def forget(self, name: str) -> None:
        remove(f"{self.home}/{name}.state")

    def stopping(self, name: str) -> bool:
        """Return whether the unit has been asked to stop."""
        return os.path.exists(f"{self.home}/{name}.stop")

    def stopped(self, name: str) -> None:
        """Forget that the unit has been asked to stop."""
        remove(f"{self.home}/{name}.stop")

    def lock(self) -> TextIO:
        """Return an open file that locks out other requests to start or stop units until all its copies are closed."""
        import fcntl

        file = open(f"{self.home}/lock", "w")  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def order(self, name: str) -> str:
        return f"{self.home}/{name}.order"

    def group(self, name: str) -> str:
        return f"{self.tree}/sys/fs/cgroup/systemd/tfctl.slice/{name}"

    def at(self, path: str) -> str:
        return f"{self.tree}/{path.lstrip('/')}"


def read(path: str) -> str | None:
    """Return the text of a file, or None if there is no such file."""
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


def directives(text: str) -> dict[str, str]:
    """Return the values of lines ``KEY=VALUE``. The last one wins."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def touch(path: str) -> None:
    with open(path, "a"):
        pass


def remove(path: str) -> None:
    try:  # noqa: SIM105
        os.unlink(path)
    except FileNotFoundError:
        pass


def start(manager: Manager, units: list[str]) -> int:
    """Start units concurrently. Return when each has been executed or could not be."""
    from fake_supervisor import begin

    status, found = 0, [unit for unit in units if manager.file(unit) is not None]
    for unit in units:
        if unit not in found:
            print(f"Failed to start {unit}: Unit {unit} not found.", file=sys.stderr)
            status = 5
    waiting = begin(manager, found)
    while os.path.exists(f"{manager.home}/hold-start"):
        time.sleep(0.01)
    for unit, pipe in waiting.items():
        if os.read(pipe, 16) != b"ok":
            print(f"Job for {unit} failed because the control process exited with error code.", file=sys.stderr)
            status = 1
    return status


def stop(manager: Manager, units: list[str], wait: bool = True) -> None:
    undying = os.path.exists(f"{manager.home}/undying")  # as what hangs in a file system
    with manager.lock():
        for unit in units:
            if manager.state(unit)["ActiveState"] not in ENDED and not (undying and has_drop_in(unit)):
                touch(f"{manager.home}/{unit}.stop")
    while wait and any(manager.state(unit)["ActiveState"] not in ENDED for unit in units):
        time.sleep(0.005)


def restart(manager: Manager, units: list[str]) -> int:
    """Restart units. Each has a job (Job=) until it runs again."""
    for unit in units:
        touch(manager.order(unit))
    stop(manager, units)
    while os.path.exists(f"{manager.home}/hold-restart"):
        time.sleep(0.01)
    status = start(manager, units)
    for unit in units:
        remove(manager.order(unit))
    return status


def kill(manager: Manager, units: list[str], name: str) -> None:
    import signal

    if os.path.exists(f"{manager.home}/undying"):
        return
    for unit in units:
        for pid in (read(f"{manager.group(unit)}/cgroup.procs") or "").split():
            try:
                os.killpg(int(pid), signal.Signals[name])
            except OSError:
                break


def reset(manager: Manager, units: list[str]) -> None:
    for unit in units:
        if manager.state(unit)["ActiveState"] in ENDED:
            manager.forget(unit)


def shown(manager: Manager, unit: str, wanted: list[str]) -> list[str]:
    known = manager.file(unit) is not None or manager.state(unit)["ActiveState"] != "inactive"
    place = f"/run/systemd/system/{unit}" if known else ""
    other = read(f"{manager.home}/{unit}.from")  # a unit of that name from another place
    if other is not None:
        known, place = True, other
    dropped_in = has_drop_in(unit) and os.path.exists(f"{manager.tree}/{DROP_IN}")
    everything = {
        **manager.state(unit), "Id": unit, "LoadState": "loaded" if known else "not-found", "NeedDaemonReload": "no",
        "DropInPaths": f"/{DROP_IN}" if dropped_in else "",
        "FragmentPath": place, "Job": "7" if os.path.exists(manager.order(unit)) else "",
    }  # fmt: skip
    return [f"{name}={everything[name]}" for name in wanted]


def hold_one(manager: Manager, verb: str) -> None:
    """Keep back the answer to the first call that finds a file hold-VERB, until the file held-VERB is gone."""
    held = f"{manager.home}/held-{verb}"
    try:
        os.rename(f"{manager.home}/hold-{verb}", held)
    except FileNotFoundError:
        return
    while os.path.exists(held):
        time.sleep(0.01)


def listed(manager: Manager, patterns: list[str]) -> list[str]:
    """Return the lines of list-units, without --all: units that are active, have failed or have a job."""
    from fnmatch import fnmatch

    rows = []
    for file in sorted(os.listdir(manager.home)):
        unit = file.removesuffix(".state").removesuffix(".order")
        if unit == file or not any(fnmatch(unit, pattern) for pattern in patterns):
            continue
        state, queued = manager.state(unit), os.path.exists(manager.order(unit))
        if state["ActiveState"] != "inactive" or queued:
            description = (manager.file(unit) or {}).get("Description", unit)
            rows.append(
                [unit, "loaded", state["ActiveState"], state["SubState"], "start" if queued else "", description]
            )
    if not any(row[4] for row in rows):  # the column is there only if a unit has a job
        rows = [[*row[:4], row[5]] for row in rows]
    return [" ".join(cell.ljust(8) for cell in row) for row in dict.fromkeys(map(tuple, rows))]


def look(manager: Manager, words: list[str]) -> str | None:
    """Return what systemctl prints if these arguments only ask for something, else None."""
    words = [word for word in words if word not in QUIET]
    if "--version" in words:
        return f"systemd {read(f'{manager.home}/version') or '252'} (252.39-1)"
    verb, *units = [word for word in words if not word.startswith("--")]
    if verb not in ("show", "list-units") or os.path.exists(f"{manager.home}/silent"):
        return None
    note_call(manager, verb, units)
    if verb == "list-units":
        return "\n".join(listed(manager, units))
    wanted = next(word for word in words if word.startswith("--")).split("=", 1)[1].split(",")
    return "\n\n".join("\n".join(shown(manager, unit, wanted)) for unit in units)


def note_call(manager: Manager, verb: str, units: list[str]) -> None:
    with open(f"{manager.home}/calls.log", "a") as log:
        log.write(" ".join([verb, *units]) + "\n")


def main() -> int:
    manager = Manager(sys.argv[1])
    text = look(manager, sys.argv[2:])
    if text is not None:
        if "show" in sys.argv[2:]:
            hold_one(manager, "show")
        print(text)
        return 0
    if os.path.exists(f"{manager.home}/silent"):
        print("Failed to connect to bus: Connection refused", file=sys.stderr)
        return 1
    words = [word for word in sys.argv[2:] if word not in QUIET]
    options = [word for word in words if word.startswith("--")]
    verb, *units = [word for word in words if not word.startswith("--")]
    note_call(manager, verb, units)
    if verb == "start":
        return start(manager, units)
    if verb == "restart":
        return restart(manager, units)
    if verb == "stop" and not units[0].endswith(".slice"):
        stop(manager, units, wait="--no-block" not in options)
    elif verb == "kill":
        kill(manager, units, options[0].split("=")[1])
    elif verb == "reset-failed":
        reset(manager, units)
    elif verb not in ("daemon-reload", "stop"):
        raise SystemExit(f"the fake has no {verb}")
    return 0
