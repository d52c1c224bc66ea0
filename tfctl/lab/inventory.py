"""The Ansible inventory of a lab: its hosts and their login settings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from tfctl.errors import BadFile
from tfctl.lab.host import give_to_caller, write
from tfctl.lab.spec import STACK, USER, LabNode

GROUP = "gpu"
_MARK = "# Written by `tfctl lab up` for lab"


def save(path: Path, nodes: Sequence[LabNode]) -> None:
    """Write the inventory. Raises BadFile if the file exists and is not this lab's."""
    check(path, nodes[0].lab.name)
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            give_to_caller(path.parent)
        write(path, text(nodes))
    except OSError as fault:
        raise BadFile(
            f"{path}: cannot be written ({fault.strerror})", "Run it in a directory that you can write to."
        ) from fault
    give_to_caller(path)


def check(path: Path, lab_name: str) -> None:
    """Raise BadFile if the file exists and is not this lab's."""
    if path.exists() and not is_ours(path, lab_name):
        raise BadFile(
            f"{path}: is not the inventory of lab {lab_name!r}", "Move that file, or give the lab another --name."
        )


def is_ours(path: Path, lab_name: str) -> bool:
    try:
        with path.open() as file:
            return file.readline().strip() == _first_line(lab_name)
    except (OSError, UnicodeDecodeError):
        return False


def text(nodes: Sequence[LabNode]) -> str:
    lines = [
        _first_line(nodes[0].lab.name),
        "# The next `tfctl lab up` overwrites it; `tfctl lab down` deletes it.",
        "",
        f"[{GROUP}]",
    ]
    lines += [f"{node.name} {_words(_login(node))}" for node in nodes]
    lines += ["", f"[{GROUP}:vars]", "ansible_python_interpreter=/usr/bin/python3", f"tfctl_stack={STACK}"]
    return "".join(f"{line}\n" for line in lines)


def _login(node: LabNode) -> dict[str, str]:
    return {
        "ansible_host": node.address,
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(node.lab.key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={node.lab.known_hosts} -o StrictHostKeyChecking=yes",
    }


def _words(variables: dict[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())


def _first_line(lab_name: str) -> str:
    return f"{_MARK} {lab_name}."
