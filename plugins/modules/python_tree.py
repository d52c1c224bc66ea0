#!/usr/bin/python
"""Install a CPython from an archive that the control machine has sent."""

from __future__ import annotations

DOCUMENTATION = """
module: python_tree
short_description: Install a CPython
author: [the tfctl authors (!UNKNOWN)]
description:
  - Compares names and sizes of the files in O(path) with those that were installed. If one differs, unpacks O(archive)
    beside O(path), imports the modules that TensorFlow needs, and moves the tree to O(path).
  - In an archive of uv, all files are in the directory C(python). For extensions that are built with it, sysconfig gets
    O(path) and the names of the compilers that a host has, as uv does where it installs a Python.
  - In check mode, RV(differs) says whether O(archive) is needed.
options:
  path: {type: path, required: true, description: Where to install the tree.}
  archive: {type: path, required: true, description: The archive on this host.}
  python: {type: str, required: true, description: 'The version of Python, such as 3.7.'}
  sha256: {type: str, required: true, description: The hash of the archive.}
"""

EXAMPLES = """
- name: Install CPython 3.7
  tfctl.cluster.python_tree:
    path: /opt/tfctl/python/3.7
    archive: /root/python-3.7.tar.gz
    python: "3.7"
    sha256: "{{ tree.sha256 }}"
"""

RETURN = """
differs: {type: bool, returned: success, description: Whether O(archive) was or is needed.}
faults:
  description:
    - Why it failed. Each has C(message), C(remedy) and C(kind).
    - If one has C(patience_s), another run is at work on the host. Call the module again, for at most so many seconds.
  type: list
  elements: dict
  returned: failure
"""

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import (
    ModuleFailed,
    finish,
    last_lines,
    replace_tree,
    run,
    scratch,
    unpack,
)
from ansible_collections.tfctl.cluster.plugins.module_utils.pythons import ASK, MARKER, listed, whole
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import digest

#: For sed: in sysconfig's values of an archive of uv, which was built in /install with clang, write the final path and
#: the compilers that hosts have. Extensions are built with them. /usr/bin/install is another word.
SETTLED = r"s,(^|[^n])/install\b,\1{},g; s/\bclang\+\+/c++/g; s/\bclang\b/cc/g; s/\bllvm-ar\b/ar/g"


def main() -> None:
    text, path = {"type": "str", "required": True}, {"type": "path", "required": True}
    module = AnsibleModule({"path": path, "archive": path, "python": text, "sha256": text}, supports_check_mode=True)
    finish(module, lambda: install(module.params, act=not module.check_mode))


def install(wanted: dict[str, Any], act: bool) -> dict[str, object]:
    path, archive, version = Path(wanted["path"]), Path(wanted["archive"]), wanted["python"]
    differs = whole(path) != version
    if act and differs:
        part, old = (path.with_name(f".{path.name}.{end}") for end in ("part", "old"))
        with scratch(path.with_name(".lock"), f"unpacks {path.name}", part, old):
            if digest(archive) != wanted["sha256"]:
                raise ModuleFailed(f"{archive} does not match the hash of the archive that was sent", "run it again")
            unpack(archive, part)
            tree = part / "python" if (part / "python").is_dir() else part
            values = map(str, tree.glob("lib/python3.*/_sysconfigdata_*.py"))
            run(["sed", "-i", "-E", SETTLED.format(path), *values])
            check_interpreter(tree, version, path.name)
            replace_tree(tree, path, old)
    return {"changed": differs, "differs": differs}


def check_interpreter(part: Path, version: str, name: str) -> None:
    """Run the tree's interpreter, compile its modules, and note its files.

    Raises ModuleFailed if it does not run here.
    """
    program = str(part / f"bin/python{version}")
    done = run([program, "-I", "-c", ASK])
    if done.stdout.strip() != version:
        raise ModuleFailed(f"{name}: its Python does not run here: {last_lines(done.stderr).splitlines()[-1]}")
    # No job can write bytecode there later. Ignore the exit code: some files are templates, which cannot be compiled.
    run([program, "-I", "-m", "compileall", "-q", "-q", str(part / "lib")])
    (part / MARKER).write_text(json.dumps({"python": version, "files": listed(part)}), encoding="utf-8")


if __name__ == "__main__":
    main()
