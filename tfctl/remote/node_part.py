"""tfctl/node and tfctl_runtime, packed for installation on hosts."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import tfctl

_NODE = Path(tfctl.__file__).resolve().parent / "node"


def node_part() -> dict[str, Any]:
    """Return the node part in the form that the role job_host takes, with contents in base64.

    {"digest": 16 hex of all that is in the tree, "files": [{"name": path below the tree, "mode", "base64"}],
    "program": what sudo runs, "drop_in": what every unit of a job has}
    """
    files = _tree()
    return {
        "digest": version(),
        "files": [{"name": name, "mode": mode, "base64": _text(content)} for name, (content, mode) in files.items()],
        "program": _text((_NODE / "bin" / "tfctl-node").read_bytes()),
        "drop_in": _text((_NODE / "10-tfctl.conf").read_bytes()),
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
    files["end"] = ((_NODE / "bin" / "end").read_bytes(), "0755")
    return files


def _files(folder: Path) -> dict[str, bytes]:
    """Return contents by path within the folder, without bin/, which is installed elsewhere, and __pycache__."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(name): (folder / name).read_bytes() for name in names if not {"bin", "__pycache__"} & {*name.parts}}


def _text(content: bytes) -> str:
    # Encoded, because Ansible would take {{ in a program for a template.
    return base64.b64encode(content).decode()
