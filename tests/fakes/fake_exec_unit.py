"""The process of a unit of `tfctl exec` under fake_systemctl: Type=oneshot, with StandardOutput=file:.

`systemctl start` returns when it has ended. A drop-in must apply, because it is what restricts the command.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

from fake_manager import DROP_IN, Manager, read
from fake_supervisor import environment_of, seconds


def run_once(manager: Manager, name: str, ready: int) -> None:
    """Run the unit to its end, and tell ``ready`` whether it succeeded."""
    unit = manager.file(name) or {}
    manager.update(name, ActiveState="activating", SubState="start")
    try:
        result = _run(manager, name, unit)
    except OSError:  # as for a missing EnvironmentFile=
        result = "resources"
    manager.stopped(name)
    manager.update(name, Result=result, ControlGroup="")
    if result == "success":
        manager.forget(name)
    else:
        manager.update(name, ActiveState="failed", SubState="failed")
    with contextlib.suppress(BrokenPipeError):
        os.write(ready, b"ok" if result == "success" else b"failed")


def _run(manager: Manager, name: str, unit: dict[str, str]) -> str:
    assert Path(manager.tree, DROP_IN).exists() and unit["User"] == "tfctl"
    if "EnvironmentFile" in unit:
        environment = environment_of(manager, unit)
    else:
        # Each Environment= adds to the ones before.
        lines = (read(f"{manager.tree}/run/systemd/system/{name}") or "").splitlines()
        words = [line.partition("=")[2] for line in lines if line.startswith("Environment=")]
        own = dict(shlex.split(word)[0].split("=", 1) for word in words)
        environment = {"PATH": ":".join(f"{manager.tree}{folder}" for folder in own["PATH"].split(":"))}
    outputs = [os.open(manager.at(unit[key].removeprefix("file:")), os.O_WRONLY)
               for key in ("StandardOutput", "StandardError")]  # fmt: skip
    words = [word.encode().decode("unicode_escape").encode("latin-1").decode() if "\\x" in word else word
             for word in shlex.split(unit["ExecStart"].lstrip(":").replace("%%", "%"))]  # fmt: skip
    process = subprocess.Popen(
        words, cwd=manager.at(unit["WorkingDirectory"]), env=environment, stdin=subprocess.DEVNULL,
        stdout=outputs[0], stderr=outputs[1], start_new_session=True,
    )  # fmt: skip
    for output in outputs:
        os.close(output)
    manager.update(name, MainPID=process.pid, ControlGroup=f"/tfctl.slice/{name}")
    group = Path(manager.group(name))
    group.mkdir(parents=True, exist_ok=True)
    (group / "cgroup.procs").write_text(f"{process.pid}\n")
    asked = 0.0
    while process.poll() is None:
        time.sleep(0.005)
        if not asked and manager.stopping(name):
            asked = time.monotonic()
            process.terminate()
        if asked and time.monotonic() - asked > seconds(unit["TimeoutStopSec"]):
            process.kill()
    with contextlib.suppress(ProcessLookupError):  # KillMode=mixed
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        (group / "cgroup.procs").unlink()
        group.rmdir()
    code, status = (1, process.returncode) if process.returncode >= 0 else (2, -process.returncode)
    manager.update(name, ExecMainCode=code, ExecMainStatus=status)
    if process.returncode == 0:
        return "success"
    return "exit-code" if process.returncode > 0 else "signal"
