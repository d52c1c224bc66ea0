#!/usr/bin/python
"""Collect all wheels of a lock in one file, on the control machine. Download each once and check its hash."""

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
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: tfctl_wheels
short_description: Keep every wheel of some locks in one file
description:
  - Runs on the control machine, which alone needs a package index. pip downloads, so its own settings of index,
    certificates and proxies hold, and takes no file whose hash is not in the lock.
  - The file stays; a second call for the same locks downloads nothing.
  - Where this machine has that version of Python, the modules are compiled here, once, in place of on every host.
options:
  locks: {type: list, elements: path, required: true, description: Locks in pip's requirements format, with hashes.}
  source: {type: str, default: '', description: 'One more requirement, with its hash, that comes as its source.'}
  python: {type: str, required: true, description: The version of Python that the wheels are for.}
  machine: {type: str, required: true, description: The machine they are for, as uname says it.}
  folder: {type: path, required: true, description: Where the file is kept.}
"""

# The oldest C library of a supported system is 2.31; wheels for older ones work there too.
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
# The format of the additional files in the archive. A new format gives a new file name.
FORMAT = 2


def main():
    module = AnsibleModule(
        argument_spec={
            "locks": {"type": "list", "elements": "path", "required": True},
            "source": {"type": "str", "default": ""},
            "python": {"type": "str", "required": True},
            "machine": {"type": "str", "required": True},
            "folder": {"type": "path", "required": True},
        }
    )
    wanted = module.params
    texts = "\0".join(
        [*(Path(lock).read_text(encoding="utf-8") for lock in wanted["locks"]), *filter(None, [wanted["source"]])]
    )
    asked = hashlib.sha256(f"{FORMAT}\0{wanted['python']}\0{wanted['machine']}\0{texts}".encode()).hexdigest()
    path = Path(wanted["folder"], f"{asked[:24]}.tar")
    try:
        with alone(path):
            if not path.exists():
                collect(module, path, path.with_suffix(".part"))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or path}: {error.strerror}")
    module.exit_json(changed=False, path=str(path), size=path.stat().st_size)


@contextlib.contextmanager
def alone(path):
    """Hold a lock, because every host of a run calls this module."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def collect(module, path, part):
    """Download the wheels. pip checks and keeps those of an earlier, interrupted run."""
    part.mkdir(exist_ok=True)
    wanted = module.params
    for lock in wanted["locks"]:
        # uv is a program and works for Pythons that its package no longer lists.
        words = ["--only-binary=:all:", "--implementation=cp", f"--python-version={wanted['python']}.{PATCH}"]
        words += ["--ignore-requires-python"]
        words += [f"--platform={tag}" for tag in platforms(wanted["machine"])]
        download(module, part, lock, words)
    if wanted["source"]:
        download_source(module, part, wanted["source"])
    else:
        compile_modules(part, wanted["python"])
    whole = path.with_suffix(".whole")
    with tarfile.open(whole, "w") as tar:
        for each in sorted(part.iterdir()):
            tar.add(each, arcname=each.name)
    whole.replace(path)
    shutil.rmtree(part)


def download(module, part, lock, more, variables=None):
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    words += ["--no-cache-dir", "--no-deps", "--require-hashes", "--dest", str(part), "--requirement", str(lock), *more]
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False)
    if done.returncode:
        module.fail_json(msg=errors_of(done.stderr) or f"pip ended with {done.returncode}")


def download_source(module, part, requirement):
    """Download a source without running its setup.py. pip asks for its metadata first, which a fake backend gives."""
    name, version = re.match(r"([\w.-]+)==(\S+)", requirement).groups()
    with tempfile.TemporaryDirectory() as folder:
        lock, backend = Path(folder, "source.txt"), Path(folder, "setuptools", "build_meta.py")
        lock.write_text(requirement, encoding="utf-8")
        backend.parent.mkdir()
        backend.with_name("__init__.py").touch()
        backend.write_text(BACKEND.format(name=name, version=version), encoding="utf-8")
        more = ["--no-binary=:all:", "--use-pep517", "--no-build-isolation"]
        download(module, part, lock, more, {"PYTHONPATH": folder})


def errors_of(said):
    """Return pip's own errors without its lists of unwanted versions, else its last lines."""
    errors = re.findall(r"^ *ERROR: (?!Ignored )(.*)$", said, re.MULTILINE)
    other = re.search(r"^ +(\S+) from (\S+).*:\n +Expected", said, re.MULTILINE)
    if other:
        return f"the bytes of {other[1]} from {other[2]} do not match the hash in the lock"
    broken = re.search(r"after connection broken by '(?:\w+\()?['\"]?(?:<[^>]*>: )?([^'\"]*)", said)
    if broken:
        errors.insert(0, f"connection broken to the package index: {broken[1]}")
    return "\n".join(re.sub(r" \(from versions: .*\)$", "", line) for line in errors or said.splitlines()[-3:])


def compile_modules(part, version):
    """Add a zip with the bytecode of all modules to the wheels in ``part``, by path below site-packages."""
    python = interpreter(version)
    if python is None:
        return
    modules = part / "modules"
    for wheel in part.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(
                modules, [name for name in file.namelist() if name.endswith(".py") and ".data/" not in name]
            )
    # Ignore the exit status: some packages contain templates that cannot be compiled.
    words = [python, "-I", "-m", "compileall", "-q", "-q", "-j", "0", str(modules)]
    subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False)
    with zipfile.ZipFile(part / BYTECODE, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for compiled in modules.rglob("*.pyc"):
            file.write(compiled, compiled.relative_to(modules))
    shutil.rmtree(modules)


def interpreter(version):
    """Return this machine's interpreter of that version, or None. Python 3.6 has another bytecode header (PEP 552)."""
    if version == "3.6":
        return None
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return sys.executable if own == version else shutil.which(f"python{version}")


def platforms(machine):
    return [
        *(f"manylinux_2_{minor}_{machine}" for minor in reversed(GLIBC)),
        *(f"{name}_{machine}" for name in OLD_NAMES.get(machine, ())),
    ]


if __name__ == "__main__":
    main()
