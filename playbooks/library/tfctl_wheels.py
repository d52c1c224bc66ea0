#!/usr/bin/python
"""Download all wheels of lock files into one archive, on the control machine. Each is downloaded once and verified."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: tfctl_wheels
short_description: Download the wheels of lock files into one archive
description:
  - Runs on the control machine, so that hosts need no package index. pip downloads the wheels, with its own settings
    for index, certificates and proxies, and rejects files whose hash is not in the lock file.
  - The archive is kept. A later call with the same lock files downloads nothing.
  - If this machine has that version of Python, the modules are compiled here once instead of on every host.
options:
  locks: {type: list, elements: path, required: true, description: 'Lock files in pip''s format, with hashes.'}
  source: {type: str, default: '', description: 'A requirement with its hash, which is downloaded as source.'}
  python: {type: str, required: true, description: The version of Python that the wheels are for.}
  machine: {type: str, required: true, description: 'The architecture that they are for, such as x86_64.'}
  folder: {type: path, required: true, description: Where to keep the archive.}
"""

# The oldest C library of a supported system is 2.31. Wheels for older ones work there too.
GLIBC = range(5, 32)
OLD_NAMES = {"x86_64": ("manylinux1", "manylinux2010", "manylinux2014"), "aarch64": ("manylinux2014",)}
LIMIT_S = 1800
# The oldest patch release on a supported system: Debian's 3.9.2 and 3.11.2. Some packages reject a .0.
PATCH = 2
BYTECODE = "bytecode.zip"
# A replacement for setuptools, for a source that names no backend (PEP 517).
BACKEND = """
import pathlib
class __legacy__:
    @staticmethod
    def prepare_metadata_for_build_wheel(folder, *_):
        path = pathlib.Path(folder, "{name}-{version}.dist-info", "METADATA")
        path.parent.mkdir()
        path.write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        return path.parent.name
"""
# The format of the archive. Increase it if what it contains changes.
FORMAT = 2


class Failed(Exception):
    """pip could not download."""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "locks": {"type": "list", "elements": "path", "required": True},
            "source": {"type": "str", "default": ""},
            "python": {"type": "str", "required": True},
            "machine": {"type": "str", "required": True},
            "folder": {"type": "path", "required": True},
        }
    )
    try:
        path = archive_of(**module.params)
    except Failed as failed:
        module.fail_json(msg=str(failed))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['folder']}: {error.strerror}")
    module.exit_json(changed=False, path=str(path), size=path.stat().st_size)


def archive_of(locks: Sequence[str], source: str, python: str, machine: str, folder: str) -> Path:
    """Return the path of the archive, which is created if there is none. Raises Failed."""
    texts = [*(Path(lock).read_text(encoding="utf-8") for lock in locks), *filter(None, [source])]
    key = hashlib.sha256("\0".join([str(FORMAT), python, machine, *texts]).encode()).hexdigest()
    path = Path(folder, f"{key[:24]}.tar")
    with alone(path):
        if not path.exists():
            part = path.with_suffix(".part")
            part.mkdir(exist_ok=True)  # pip verifies and keeps the files of an earlier, interrupted run
            for lock in locks:
                download_wheels(part, lock, python, machine)
            if source:
                download_source(part, source)
            else:
                compile_modules(part, python)
            pack(part, path)
    return path


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock, because this module is called for every host of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def pack(part: Path, path: Path) -> None:
    complete = path.with_suffix(".whole")
    with tarfile.open(complete, "w") as tar:
        for each in sorted(part.iterdir()):
            tar.add(each, arcname=each.name)
    complete.replace(path)
    shutil.rmtree(part)


def download_wheels(part: Path, lock: str, python: str, machine: str) -> None:
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in reversed(GLIBC)]
    platforms += [f"{name}_{machine}" for name in OLD_NAMES.get(machine, ())]
    words = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}.{PATCH}"]
    # uv is a program, and works for versions of Python that its package does not list any more.
    download(part, lock, [*words, "--ignore-requires-python", *(f"--platform={each}" for each in platforms)])


def download_source(part: Path, requirement: str) -> None:
    """Download a source without running its setup.py: pip asks for its metadata, which a fake backend provides."""
    match = re.match(r"([\w.-]+)==(\S+)", requirement)
    if not match:
        raise Failed(f"{requirement.strip()!r} is not NAME==VERSION")
    with tempfile.TemporaryDirectory() as folder:
        lock, backend = Path(folder, "source.txt"), Path(folder, "setuptools", "build_meta.py")
        lock.write_text(requirement, encoding="utf-8")
        backend.parent.mkdir()
        backend.with_name("__init__.py").touch()
        backend.write_text(BACKEND.format(name=match[1], version=match[2]), encoding="utf-8")
        words = ["--no-binary=:all:", "--use-pep517", "--no-build-isolation"]
        download(part, str(lock), words, {"PYTHONPATH": folder})


def download(part: Path, lock: str, more: Sequence[str], variables: dict[str, str] | None = None) -> None:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    words += ["--no-cache-dir", "--no-deps", "--require-hashes", "--dest", str(part), "--requirement", lock, *more]
    # Since Python 3.11, this prevents the import of a file such as pip.py from the current directory.
    environment = {**os.environ, "PYTHONSAFEPATH": "1", **(variables or {})}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise Failed(errors_of(done.stderr) or f"pip ended with exit code {done.returncode}")


def errors_of(output: str) -> str:
    """Return pip's own errors without its lists of unwanted versions, else its last lines."""
    other = re.search(r"^ +(\S+) from (\S+).*:\n +Expected", output, re.MULTILINE)
    if other:
        return f"the download of {other[1]} from {other[2]} does not match the hash in the lock file"
    errors: list[Any] = re.findall(r"^ *ERROR: (?!Ignored )(.*)$", output, re.MULTILINE)
    broken = re.search(r"after connection broken by '(?:\w+\()?['\"]?(?:<[^>]*>: )?([^'\"]*)", output)
    if broken:
        errors.insert(0, f"connection broken to the package index: {broken[1]}")
    return "\n".join(re.sub(r" \(from versions: .*\)$", "", line) for line in errors or output.splitlines()[-3:])


def compile_modules(part: Path, version: str) -> None:
    """Add a zip with the bytecode of all modules, by path below site-packages, to the wheels in ``part``."""
    python = interpreter(version)
    if python is None:
        return
    modules = part / "modules"
    for wheel in part.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            names = [name for name in file.namelist() if name.endswith(".py") and ".data/" not in name]
            file.extractall(modules, names)
    # Ignore the exit code: some packages contain templates, which cannot be compiled.
    words = [python, "-I", "-m", "compileall", "-q", "-q", "-j", "0", str(modules)]
    subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False)
    with zipfile.ZipFile(part / BYTECODE, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for compiled in modules.rglob("*.pyc"):
            file.write(compiled, compiled.relative_to(modules))
    shutil.rmtree(modules)


def interpreter(version: str) -> str | None:
    """Return this machine's interpreter of that version. Python 3.6 has another bytecode header (PEP 552)."""
    if version == "3.6":
        return None
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return sys.executable if own == version else shutil.which(f"python{version}")


if __name__ == "__main__":
    main()
