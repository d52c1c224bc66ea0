"""tfctl/node and tfctl_runtime, packed for installation on hosts."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TypedDict

import tfctl

_NODE = Path(tfctl.__file__).resolve().parent / "node"


class File(TypedDict):
    """``name``: its path within the tree."""

    name: str
    mode: str
    base64: str


class NodePart(TypedDict):
    """``digest``: of all files of the tree, 16 hex digits. ``program``: what sudo runs. ``drop_in``: what systemd adds
    to the unit of every task. Both are encoded as the files are."""

    digest: str
    files: list[File]
    program: str
    drop_in: str


@cache
def node_part() -> NodePart:
    """Return the node part in the form that the role job_host takes."""
    files = _tree()
    return {
        "digest": version(),
        "files": [{"name": name, "mode": mode, "base64": _encoded(data)} for name, (data, mode) in files.items()],
        "program": _encoded((_NODE / "bin" / "tfctl-node").read_bytes()),
        "drop_in": _encoded((_NODE / "10-tfctl.conf").read_bytes()),
    }


@cache
def version() -> str:
    """Return the version that hosts report for this node part: 16 hex digits."""
    digest = hashlib.sha256()
    for name, (content, mode) in sorted(_tree().items()):
        digest.update(f"{name}\0{mode}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _tree() -> dict[str, tuple[bytes, str]]:
    """Return content and mode by path within the tree."""
    files = {f"tfctl_node/{name}": (content, "0644") for name, content in _files(_NODE).items()}
    # In its own directory, because that is on the sys.path of training scripts.
    runtime = _NODE.parent.with_name("tfctl_runtime")
    files |= {f"runtime/tfctl_runtime/{name}": (content, "0644") for name, content in _files(runtime).items()}
    files |= {name: ((_NODE / "bin" / name).read_bytes(), "0755") for name in ("end", "note")}
    return files


def _files(folder: Path) -> dict[str, bytes]:
    """Return contents by path within the folder, without bin/, which is installed elsewhere, and __pycache__."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(name): (folder / name).read_bytes() for name in names if not {"bin", "__pycache__"} & {*name.parts}}


def _encoded(content: bytes) -> str:
    """Return the content in base64, because Ansible would take {{ in a program for a template."""
    return base64.b64encode(content).decode()
