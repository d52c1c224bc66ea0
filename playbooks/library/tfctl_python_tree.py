#!/usr/bin/python
"""Unpack a CPython tree: check its hash, run its interpreter, then move it into place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_pythons import MARKER, asked, listed
from ansible.module_utils.tfctl_venv import alone

DOCUMENTATION = """
module: tfctl_python_tree
short_description: Unpack a CPython tree that was packed on the control machine
description:
  - Compares the hash of O(archive), unpacks it beside O(path), has its interpreter import what TensorFlow does, and
    moves it to O(path). A note in it says what every file was; preflight compares. The archive is removed.
options:
  path: {type: path, required: true, description: Where the tree is to stand.}
  archive: {type: path, required: true, description: The packed tree, on this host.}
  python: {type: str, required: true, description: Its version, as in 3.7.}
  sha256: {type: str, required: true, description: What the archive's hash must be.}
"""
LIMIT_S = 300


def main():
    text = {"type": "str", "required": True}
    path = {"type": "path", "required": True}
    spec = {"path": path, "archive": path, "python": text, "sha256": text}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=True)
    os.umask(0o022)  # the job user must be able to read the files, whatever root's umask is
    try:
        unpack(Path(module.params["path"]), Path(module.params["archive"]), module.params)
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault])
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['path']}: {error.strerror}")
    module.exit_json(changed=True)


def unpack(path, archive, wanted):
    part = path.with_name(f".{path.name}.part")
    with alone(path.with_name(".lock"), f"unpacks {path.name}"):
        try:
            prove(part, archive, wanted)
            shutil.rmtree(path, ignore_errors=True)
            part.rename(path)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            archive.unlink(missing_ok=True)


def prove(part, archive, wanted):
    """Unpack the archive into ``part``; check its hash and that it runs here. Raises Failed."""
    if hashlib.sha256(archive.read_bytes()).hexdigest() != wanted["sha256"]:
        raise Failed(f"{archive} is not what was packed on the control machine", "run it again")
    shutil.rmtree(part, ignore_errors=True)
    # tfctl packed it, so it is trusted. Python 3.12 warns if the filter is not named.
    trust = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    with tarfile.open(archive) as tar:
        tar.extractall(part, **trust)
    program = part / f"bin/python{wanted['python']}"
    if asked(str(program)) != wanted["python"]:
        raise Failed(f"{archive.name}: its Python does not run here: {said_by(program)}")
    compile_modules(program, part)
    (part / MARKER).write_text(json.dumps({"python": wanted["python"], "files": listed(part)}), encoding="utf-8")


def said_by(program):
    done = subprocess.run(
        [str(program), "-I", "-c", "import ctypes, ssl, zlib"], capture_output=True, text=True, timeout=60, check=False
    )
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def compile_modules(program, part):
    """Compile modules that lack bytecode, which no job can write. Ignore failures: some files are templates."""
    words = [str(program), "-I", "-m", "compileall", "-q", "-q", str(part / "lib")]
    subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False)


if __name__ == "__main__":
    main()
