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

#: What a play of tfctl's own roles needs.
SETTINGS = {"ANSIBLE_COLLECTIONS_PATH": str(ansible.collections_dir()), "ANSIBLE_NOCOLOR": "1"}


def play(
    lab: Lab, roles: Sequence[str], given: dict[str, Any], *words: str, settings: Mapping[str, str] = SETTINGS
) -> str:
    """Run the roles on node1; return the output of ansible-playbook."""
    found = {
        "hosts": "node1",
        "gather_facts": False,
        "become": True,
        "roles": [{"role": f"tfctl.cluster.{name}"} for name in roles],
    }
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
