#!/usr/bin/python
"""Write the receipt of a role before and after it runs, or remove what receipts list as created."""

from __future__ import annotations

DOCUMENTATION = """
module: receipt
short_description: Record what a role creates, and undo it
author: [the tfctl authors (!UNKNOWN)]
description:
  - C(begin), before a role, records what exists. C(end), after it, records what the role has created, and a fingerprint
    of everything that it manages. Both only write the receipt, so they never report a change, and do nothing in check
    mode.
  - C(absent) removes what the receipts list as created, the last first, and then the receipts. It refuses while a job
    runs on the host. Directories that are not empty stay, and so do packages that others need.
options:
  state: {type: str, required: true, choices: [begin, end, absent], description: What to do.}
  role: {type: str, description: 'For C(begin) and C(end): the role.'}
  digest: {type: str, description: 'For C(end): the digest of the inputs of the role.'}
  manages: {type: dict, description: 'What the role manages: see the class Manages in tfctl/node/receipts.py.'}
  keep: {type: list, elements: str, default: [], description: Roles that C(absent) leaves alone.}
  folder: {type: path, default: /var/lib/tfctl/provision, description: The directory of the receipts.}
"""

EXAMPLES = """
- name: Record what exists before the role
  tfctl.cluster.receipt:
    state: begin
    role: motd
    manages: {paths: [/etc/motd.d/cluster]}

- name: Describe the cluster to users
  ansible.builtin.copy:
    content: |
      Jobs are started with tfctl.
    dest: /etc/motd.d/cluster
    mode: "0644"

- name: Record what the role has created
  tfctl.cluster.receipt:
    state: end
    role: motd
    digest: "1"
    manages: {paths: [/etc/motd.d/cluster]}
"""

RETURN = """
removed: {type: list, elements: str, returned: 'with C(absent)', description: What was removed.}
kept: {type: list, elements: str, returned: 'with C(absent)', description: 'What stays, and why.'}
role: {type: str, returned: 'with C(begin) and C(end)', description: The role whose receipt was written.}
faults: {type: list, elements: dict, returned: failure, description: 'Why it failed: C(message), C(remedy), C(kind).'}
"""

from contextlib import nullcontext
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.created import begin, end, running_jobs, undo
from ansible_collections.tfctl.cluster.plugins.module_utils.install import BUSY, TURN_S, ModuleFailed, finish
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import FOLDER, read_all
from ansible_collections.tfctl.cluster.plugins.module_utils.starting import STARTS, Held, lock


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["begin", "end", "absent"]},
            "role": {"type": "str"},
            "digest": {"type": "str"},
            "manages": {"type": "dict"},
            "keep": {"type": "list", "elements": "str", "default": []},
            "folder": {"type": "path", "default": FOLDER},
        },
        required_if=[("state", "begin", ("role", "manages")), ("state", "end", ("role", "digest", "manages"))],
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode and given["state"] != "absent":
        module.exit_json(changed=False, invocation={})
    finish(module, lambda: write(given) if given["state"] != "absent" else remove(given, act=not module.check_mode))


def write(given: dict[str, Any]) -> dict[str, object]:
    if given["state"] == "begin":
        begin(given["role"], given["manages"], given["folder"])
    else:
        end(given["role"], given["digest"], given["manages"], given["folder"])
    return {"role": given["role"]}


def remove(given: dict[str, Any], act: bool) -> dict[str, object]:
    """Undo all roles but those to keep. No job can be started meanwhile. Raises ModuleFailed."""
    receipts = [receipt for receipt in read_all(given["folder"]) if receipt["role"] not in given["keep"]]
    own = set() if STARTS.exists() else {str(STARTS)}  # where the lock would be the first file
    try:
        with lock(STARTS, TURN_S) if act else nullcontext():
            jobs = running_jobs()
            if jobs:
                named = " and ".join(f"job {job}" for job in jobs)
                raise ModuleFailed(f"{named} runs on this host, or is being started", f"tfctl stop {jobs[0]}", BUSY)
            removed, kept = undo(receipts, given["folder"], act)
    except Held:
        raise ModuleFailed("a job is being started on this host", "try again, or stop that job first", BUSY) from None
    return {"changed": bool(receipts), "removed": [what for what in removed if what not in own], "kept": kept}


if __name__ == "__main__":
    main()
