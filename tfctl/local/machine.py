"""What this machine offers a job: free ports, GPUs and the active Python."""

from __future__ import annotations

import fcntl
import json
import platform
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import NamedTuple

from tfctl.errors import BadFile, PreflightFailed
from tfctl.model import stacks
from tfctl.model.stacks import Stack
from tfctl.provision.decide.cards import numbers

_TIMEOUT_S = 20
#: Prints the name → version of every package that a Python has, as JSON.
_PRINT_PACKAGES = """
import importlib.metadata as m, json, platform
found = (d for d in m.distributions() if {"Name", "Version"} <= {*(d.metadata or ())})  # pip leaves broken ones
packages = {d.metadata["Name"].lower().replace("-", "_"): d.version for d in found}
print(json.dumps({"python": platform.python_version(), "packages": packages}))
"""
_TENSORFLOWS = ("tensorflow", "tensorflow_cpu", "tensorflow_macos", "tf_nightly")


@contextmanager
def free_ports(count: int, within: tuple[int, int], locks: Path) -> Iterator[tuple[int, ...]]:
    """Yield the lowest ``count`` free ports, or fewer, and reserve them against this user's other local runs.

    A reservation bridges the seconds that TensorFlow takes to import, between choosing a port and using it. It is a
    lock on the byte of the file ``locks`` whose offset is the port number. If that cannot be written, none is reserved.
    """
    found: list[int] = []
    with ExitStack() as stack:
        file = -1
        with suppress(OSError):
            locks.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(locks.open("w")).fileno()
        for port in range(within[0], within[1] + 1):
            if len(found) == count:
                break
            if (file < 0 or _lock(file, port)) and _is_free(port):
                found.append(port)
        yield tuple(found)


def visible_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs or MIG instances; or the user's own CUDA_VISIBLE_DEVICES, up to its first invalid
    entry, as CUDA reads it."""
    own = environ.get("CUDA_VISIBLE_DEVICES")
    if own is None:
        return gpus_in(_output_of(["nvidia-smi", "-L"], environ))
    names = re.match(r"(?:(?:\d+|(?:GPU|MIG)-[\w/-]+)(?:,|$))*", own.replace(" ", ""))
    return tuple(name for name in names[0].split(",") if name) if names else ()


def gpus_in(text: str) -> tuple[str, ...]:
    """Return the UUIDs in the output of `nvidia-smi -L`, with a divided GPU's MIG instances in its place."""
    found = re.findall(r"\(UUID: ((GPU|MIG)-[^)\s]+)\)", text)
    divided = {at for at, (_, kind) in enumerate(found[1:]) if kind == "MIG" and found[at][1] == "GPU"}
    return tuple(uuid for at, (uuid, _) in enumerate(found) if at not in divided)


class Gpu(NamedTuple):
    """A GPU as nvidia-smi shows it: compute capability and the version of the driver."""

    capability: str
    driver: str


def edition(stack: Stack, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the edition of a stack that fits this machine, and why it is cpu although there are GPUs, or ""."""
    if not visible_gpus(environ):
        return "cpu", ""
    gpus, needs, own = _gpus(environ), stack.gpu, stack.editions.get("gpu")
    if needs is None or own is None or platform.machine() not in own.machines:
        return "cpu", f"{stack.name} has no edition for the GPUs of this machine"
    if not needs.wheels:
        return "cpu", f"{stack.name} needs CUDA to be installed on the system, and `tfctl run` does not use such a CUDA"
    least, most = numbers(needs.capability.min), numbers(needs.capability.max)
    fitting = [gpu for gpu in gpus if least <= numbers(gpu.capability) <= most]
    if not fitting:
        shown = ", ".join(dict.fromkeys(gpu.capability for gpu in gpus)) or "unknown"
        return "cpu", (
            f"{stack.name} uses GPUs of compute capability {needs.capability.min} to {needs.capability.max}, and this "
            f"machine's have {shown}"
        )
    oldest = max((needs.oldest_driver(gpu.capability, stacks.nvidia().ptx) for gpu in fitting), key=numbers)
    if numbers(fitting[0].driver) < numbers(oldest):
        return "cpu", f"{stack.name} needs NVIDIA's driver {oldest} or newer, and this machine has {fitting[0].driver}"
    return "gpu", ""


def _gpus(environ: Mapping[str, str]) -> list[Gpu]:
    """Return the machine's GPUs; none if the driver is older than 510, which does not tell their capabilities."""
    shown = _output_of(["nvidia-smi", "--query-gpu=compute_cap,driver_version", "--format=csv,noheader"], environ)
    rows = [[cell.strip() for cell in line.split(",")] for line in shown.splitlines()]
    return [Gpu(*row) for row in rows if len(row) == 2 and numbers(row[0])]


def python_stack(environ: Mapping[str, str]) -> Stack | None:
    """Return the `python` on PATH as a stack named "python", with its package versions; None without TensorFlow."""
    packages = _active_python(environ).packages
    versions = {name: match[0] for name, text in packages.items() if (match := re.match(r"\d+(\.\d+)+", text))}
    tensorflow = next((versions[name] for name in _TENSORFLOWS if name in versions), None)
    if tensorflow is None:
        return None
    return Stack(
        name="python", title="the active Python", tensorflow=tensorflow, imports=versions,
        pythons=(), requirements=(), as_of=date.today(), editions={}, tested=(),
    )  # fmt: skip


def require_packages(file: Path, environ: Mapping[str, str]) -> None:
    """Raise PreflightFailed if the `python` on PATH lacks a package that a requirements file names.

    Options, such as `-r`, are not followed. Raise BadFile if the file cannot be read.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"requirements: {file} cannot be read: {error}") from None
    python = _active_python(environ)
    of_python = {"python_full_version": python.version, "python_version": ".".join(python.version.split(".")[:2])}
    lacking: list[str] = []
    for line in lines:
        try:
            wanted = Requirement(line.partition("#")[0].strip())
        except InvalidRequirement:
            continue
        version = python.packages.get(re.sub(r"[-_.]+", "_", wanted.name).lower())
        applies = wanted.marker is None or wanted.marker.evaluate(of_python if python.version else None)
        if applies and (version is None or not wanted.specifier.contains(version, True)):
            lacking.append(f"{wanted} ({version} is installed)" if version else str(wanted))
    if lacking:
        message = f"the active Python lacks packages of {file.name}: {', '.join(lacking)}"
        raise PreflightFailed(message, f"python -m pip install -r {file}")


class _Python(NamedTuple):
    """The `python` on PATH: its version, or "" if it cannot be run, and {package: version}; names have underscores."""

    version: str
    packages: Mapping[str, str]


def _active_python(environ: Mapping[str, str]) -> _Python:
    lines = _output_of(["python", "-c", _PRINT_PACKAGES], environ).splitlines()
    line = next((line for line in lines if line.startswith('{"python"')), None)  # a site's hooks may print too
    if line is None:
        return _Python("", {})
    found = json.loads(line)
    return _Python(found["python"], {name.replace(".", "_"): version for name, version in found["packages"].items()})


def _output_of(words: list[str], environ: Mapping[str, str]) -> str:
    """Return a program's output; empty if it is missing or fails."""
    try:
        done = subprocess.run(
            words, env=dict(environ), capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _lock(file: int, port: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    """Return whether no process uses the port on any address: TensorFlow's server listens on every IPv4 address."""
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
