"""Resolve requirements with uv: the exact versions of all wheels, with their hashes, in pip's requirements format."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tfctl.errors import BadFile, TfctlError
from tfctl.model.stacks import TOOLS, Stack
from tfctl.provision import uv

# The C library of the oldest supported system, Debian 11: wheels for newer ones do not load there.
# The oldest patch release of Python on a supported system: Debian's 3.9.2 and 3.11.2.
PATCH = 2
PLATFORM = {"x86_64": "x86_64-manylinux_2_31", "aarch64": "aarch64-manylinux_2_31"}
LIMIT_S = 600
_TENSORFLOWS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")
#: A package with its hashes, as uv writes it.
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+) \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)


def write_tools(as_of: date) -> None:
    """Write the lock of the installer itself."""
    TOOLS.write_text(resolved(("uv",), "3.9", "x86_64", as_of))


def write_locks(stack: Stack) -> Iterator[Path]:
    """Write all locks of a stack, as of its date, and yield the path of each. Raises BadFile and TfctlError."""
    for python in stack.pythons:
        for edition, own in stack.editions.items():
            asked = (*stack.requirements, *own.requirements)
            text = resolved(asked, python, own.machines[0], stack.as_of, stack.sources, own.without)
            yield _write(stack.lock(edition, python), text)
        if stack.horovod:
            text = resolved(stack.horovod.build, python, "x86_64", stack.as_of)
            yield _write(stack.build_lock(python), text)


def resolved(
    asked: Sequence[str],
    python: str,
    machine: str,
    as_of: date,
    sources: Sequence[str] = (),
    without: Sequence[str] = (),
) -> str:
    """Return the lock of these requirements. Raises BadFile if no wheels satisfy them, TfctlError if uv fails.

    ``sources``: packages without a wheel. ``without``: packages to leave out, although others depend on them.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requirements.in")
        file.write_text("".join(f"{requirement}\n" for requirement in asked))
        words = [f"--exclude-newer={as_of}T00:00:00Z", *(f"--no-binary={source}" for source in sources)]
        text = _compile(file, python, machine, [*words, f"--override={_overrides(Path(folder), without)}"])
    return (f"--no-binary={','.join(sources)}\n" if sources else "") + text


def resolved_beside(file: Path, lock: Path, python: str, machine: str, before: str = "", index: str = "") -> str:
    """Return the lock of a requirements file for an environment that has the packages of another lock.

    The result has only packages that the environment lacks. ``before``: an earlier result, whose versions are kept as
    far as possible. ``index``: the package index, in place of that of the settings. Raises BadFile if there is no
    solution, TfctlError if uv fails.
    """
    present = entries(lock.read_text(encoding="utf-8"))
    # They install the same files, so the stack's own stands for all of them.
    tensorflow = next((name for name in _TENSORFLOWS if name in present), "")
    others = [name for name in _TENSORFLOWS if tensorflow and name != tensorflow]
    if tensorflow:
        _require_tensorflow(file, others, present[tensorflow][0])
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("".join(f"{name}=={version}\n" for name, (version, _) in present.items()))
        overrides = _overrides(Path(folder), others)
        text = _compile(
            file, python, machine, [f"--constraint={constraints}", f"--override={overrides}"], before, index
        )
    packages = entries(text)
    rest = _ENTRY.sub("", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).split()
    if rest:
        raise BadFile(
            f"{file}: {' '.join(rest[:3])}: only releases of a package index can be installed, not paths and URLs",
            "name a package and its version",
        )
    return "".join(entry for name, (_, entry) in packages.items() if name not in present)


def entries(lock: str) -> dict[str, tuple[str, str]]:
    """Return {normalized name: (version, entry)} of the packages in a lock."""
    found: dict[str, tuple[str, str]] = {}
    for match in _ENTRY.finditer(lock):
        found[canonicalize_name(match[1])] = (match[2], match[0])
    return found


def _overrides(folder: Path, without: Sequence[str]) -> Path:
    """Write overrides, which uv applies before any package's requirements. A marker that never holds excludes one."""
    path = folder / "overrides.txt"
    path.write_text("".join(f"{package} ; sys_platform == 'none'\n" for package in without))
    return path


def _require_tensorflow(file: Path, names: Sequence[str], version: str) -> None:
    """Raise BadFile if the file names TensorFlow in a version that is not the stack's."""
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            requirement = Requirement(line.partition("#")[0].strip())
        except InvalidRequirement:  # an option, which is for uv
            continue
        if canonicalize_name(requirement.name) in names and not requirement.specifier.contains(version, True):
            raise BadFile(f"{file}: {line.strip()}: the stack has TensorFlow {version}")


def _compile(file: Path, python: str, machine: str, more: Sequence[str], before: str = "", index: str = "") -> str:
    """Return the lock that uv resolves. ``before``: an earlier one, whose versions it prefers."""
    words = [uv.program(), "pip", "compile", "--quiet", "--generate-hashes", "--only-binary=:all:", "--no-header"]
    words += ["--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--no-config", "--color=never"]
    words += [f"--python-version={python}.{PATCH}", f"--python-platform={PLATFORM[machine]}", *more, str(file)]
    settings, options = uv.settings(index)
    words += options
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "lock.txt")
        lock.write_text(before, encoding="utf-8")
        words.append(f"--output-file={lock}")
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, env=settings, check=False)
        except subprocess.TimeoutExpired:
            message = f"{file}: `uv pip compile` ran longer than {LIMIT_S} s and was killed"
            raise TfctlError(message, "check that the package index can be reached, then try again") from None
        if done.returncode == 0:
            return lock.read_text(encoding="utf-8")
    # uv exits with 1 if it finds no solution, and with 2 for everything else.
    kind = BadFile if done.returncode == 1 else TfctlError
    raise kind(uv.message_of(done.stderr) or f"uv ended with exit code {done.returncode}")


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
