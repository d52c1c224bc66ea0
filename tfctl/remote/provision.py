"""What `tfctl provision` gives its playbook: the node part, the stacks, and what the user asked for."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

import tfctl
from tfctl.errors import UsageError
from tfctl.model import stacks
from tfctl.remote import ansible
from tfctl.remote.report import Event, Report

#: The roles, in the order of the playbook; they are its tags.
TAGS = (
    "preflight",
    "proxy",
    "time_sync",
    "firewall",
    "shared_storage",
    "job_host",
    "dataset",
    "ssh_mesh",
    "python_env",
    "toolchain",
    "nvidia_repo",
    "cuda",
    "cudnn",
    "nccl",
    "nvidia_driver",
    "tensorflow",
)

#: Of any host, where the others reach it; Ansible makes an address of it.
_DIAL = "{{ tfctl_address | default(ansible_host) | default(inventory_hostname) }}"


@dataclass(frozen=True)
class Request:
    """``stack`` None: what the inventory says of each host. ``reboot``: hosts whose driver asks for it, in batches."""

    inventory: Path
    stack: str | None = None
    limit: str | None = None
    tags: tuple[str, ...] = ()
    check: bool = False
    diff: bool = False
    reboot: bool = False


def run(request: Request, listen: Callable[[Event], None]) -> Report:
    """Make the hosts match, or with ``check`` say what would change. A host's failure is in the report.

    Raises BadFile for an unknown stack, UsageError for an unknown tag, and what ansible.run raises.
    """
    if request.stack not in (None, stacks.NONE):
        stacks.get(request.stack)
    for tag in request.tags:
        if tag not in TAGS:
            raise UsageError(f"--tags {tag}: there is no such part", f"there are: {', '.join(TAGS)}")
    variables: dict[str, Any] = {
        "tfctl_node": node_part(),
        "tfctl_stacks": catalogue(),
        "tfctl_systems": systems(),
        "tfctl_nvidia": stacks.nvidia().model_dump(),
        "tfctl_dial": _DIAL,
        "tfctl_tools": str(stacks.TOOLS),
        "tfctl_cache": str(platformdirs.user_cache_path("tfctl") / "wheels"),
    }
    if request.stack:
        variables["tfctl_stack"] = request.stack
    if request.reboot:
        variables["tfctl_reboot"] = True
    play = ansible.Play(
        "provision", request.inventory, request.limit, request.tags, request.check, request.diff, variables
    )
    return ansible.run(play, listen)


def node_part() -> dict[str, Any]:
    """tfctl/node and tfctl_runtime as the role job_host takes them, contents in base64.

    {"digest": 16 hex of all that is in the tree, "files": [{"name": path below the tree, "mode", "base64"}],
    "program": what sudo runs, "drop_in": what every unit of a job has}
    """
    folder = Path(tfctl.__file__).resolve().parent / "node"
    runtime = folder.parent.with_name("tfctl_runtime")
    files = {f"tfctl_node/{name}": (content, "0644") for name, content in _files(folder).items()}
    # In a directory of its own: it stands on the sys.path of training scripts.
    files |= {f"runtime/tfctl_runtime/{name}": (content, "0644") for name, content in _files(runtime).items()}
    files["end"] = ((folder / "bin" / "end").read_bytes(), "0755")
    digest = hashlib.sha256()
    for name, (content, mode) in sorted(files.items()):
        digest.update(f"{name}\0{mode}\0{len(content)}\0".encode() + content)
    return {
        "digest": digest.hexdigest()[:16],
        "files": [{"name": name, "mode": mode, "base64": _text(content)} for name, (content, mode) in files.items()],
        "program": _text((folder / "bin" / "tfctl-node").read_bytes()),
        "drop_in": _text((folder / "10-tfctl.conf").read_bytes()),
    }


def catalogue() -> dict[str, Any]:
    """The stacks as the role preflight takes them, each environment with its name and its lock on this machine."""
    return {
        name: {
            "pythons": stack.pythons,
            "imports": stack.imports,
            "gcc": stack.gcc.model_dump() if stack.gcc else None,
            "gpu": stack.gpu.model_dump() if stack.gpu else None,
            "editions": {
                label: {
                    "machines": edition.machines,
                    "disk_mb": edition.disk_mb,
                    "environments": {
                        python: {"name": stack.environment(label, python), "lock": str(stack.lock(label, python))}
                        for python in stack.pythons
                    },
                }
                for label, edition in stack.editions.items()
            },
        }
        for name, stack in stacks.load().items()
    }


def systems() -> dict[str, Any]:
    return {name: system.model_dump() for name, system in stacks.systems().items()}


def _files(folder: Path) -> dict[str, bytes]:
    """By name below the folder; without bin/, which goes elsewhere, and what Python compiled beside it."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(name): (folder / name).read_bytes() for name in names if not {"bin", "__pycache__"} & {*name.parts}}


def _text(content: bytes) -> str:
    # Not as it is: Ansible would take {{ in a program for a template of its own.
    return base64.b64encode(content).decode()
