"""Single roles on a node, with plans of the test in place of those of preflight, for hosts that a lab cannot have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tests.lab.labs import Lab
from tfctl.provision import ansible
from tfctl.provision.due import role_of

#: What a play of tfctl's own roles needs.
SETTINGS = {"ANSIBLE_COLLECTIONS_PATH": str(ansible.collections_dir()), "ANSIBLE_NOCOLOR": "1"}


def play(
    lab: Lab, roles: Sequence[str], given: dict[str, Any], *words: str, settings: Mapping[str, str] = SETTINGS
) -> str:
    """Run the roles on node1; return the output of ansible-playbook.

    ``roles``: also the entry points cuda, cudnn and nccl, whose variables ``given`` may have under that name.
    """
    tasks = []
    for part in roles:
        role, entry = role_of(part)
        included = {"name": f"tfctl.cluster.{role}", "tasks_from": entry}
        tasks.append({"ansible.builtin.include_role": included, "vars": given.get(part, {})})
    found = {"hosts": "node1", "gather_facts": False, "become": True, "tasks": tasks}
    (lab.folder / "roles.yml").write_text(json.dumps([found]))
    run = [sys.executable, "-m", "ansible", "playbook", "-i", str(lab.inventory), "-e", json.dumps(given)]
    done = subprocess.run(
        [*run, *words, "roles.yml"],
        cwd=lab.folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=900,
    )
    return done.stdout + done.stderr
