"""Run tasks of a role on this machine, where a test of the role needs no host."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tfctl.provision import ansible

ROLES = ansible.data_dir() / "roles"
#: What each part of provisioning leaves on a host.
MANAGES = ansible.data_dir() / "playbooks/vars/manages.yml"


def play(
    folder: Path, role: str, tasks: Sequence[Mapping[str, object]], *options: str, hosts: str = "localhost,"
) -> str:
    """Run tasks on this machine with the defaults and variables of a role. They must succeed. Return the output.

    ``hosts``: names of this machine.
    """
    files = [str(ROLES / role / part / "main.yml") for part in ("defaults", "vars")]
    found = {"hosts": "all", "gather_facts": False, "tasks": [*tasks]}
    found["vars_files"] = [path for path in files if Path(path).exists()]
    (folder / "play.yml").write_text(json.dumps([found]))
    words = [sys.executable, "-m", "ansible", "playbook", "-i", hosts, "--connection", "local"]
    words += ["-e", f"ansible_python_interpreter={sys.executable}", *options]
    done = subprocess.run([*words, str(folder / "play.yml")], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def facts(**values: object) -> dict[str, object]:
    """Return a task that sets facts and variables of the host, as ansible.builtin.setup and an inventory do."""
    return {"ansible.builtin.set_fact": {**values, "cacheable": True}}


def check(*that: str, **variables: object) -> dict[str, object]:
    return {"ansible.builtin.assert": {"that": [*that]}, "vars": variables}


def trial(task: Mapping[str, object], failure: str, **variables: object) -> Iterator[dict[str, object]]:
    """Yield a task of a role and a check: the task fails with this message, or succeeds if the message is empty."""
    yield {**task, "vars": variables, "register": "found", "ignore_errors": True}
    yield check("found is failed" if failure else "found is success", "expected in found | string", expected=failure)


def tasks_of(role: str, file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load((ROLES / role / "tasks" / file).read_text()))


#: A fake of systemctl, and of other programs, that writes down how it is called.
SYSTEMCTL = "#!/bin/sh\necho $* >>$CALLS\n"
