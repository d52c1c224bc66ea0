#!/usr/bin/python
"""Write the receipt of a role before and after it runs, or remove what receipts list as created."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_created import Failed, begin, end, running_jobs, undo
from ansible.module_utils.tfctl_fault import BUSY, FAILED, fail, fault
from ansible.module_utils.tfctl_receipts import FOLDER, read_all

DOCUMENTATION = """
module: tfctl_receipt
short_description: Record what a role creates, and undo it
description:
  - C(begin), before a role, records what exists. C(end), after it, records what the role has created, and a fingerprint
    of everything that it manages. Both only write the receipt, so they never report a change, and do nothing in check
    mode.
  - C(absent) removes what the receipts list as created, the last first, and then the receipts. It refuses while a job
    runs on the host. Directories that are not empty stay, and so do packages that others need.
options:
  state: {type: str, required: true, choices: [begin, end, absent], description: What to do.}
  role: {type: str, description: The role.}
  digest: {type: str, description: The digest of the inputs of the role, for C(end).}
  manages: {type: dict, description: 'What the role manages: see the class Manages in tfctl/node/receipts.py.'}
  keep: {type: list, elements: str, default: [], description: Roles that C(absent) leaves alone.}
  folder: {type: path, default: /var/lib/tfctl/provision, description: The directory of the receipts.}
"""


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
    try:
        if given["state"] == "absent":
            remove(module)
        elif given["state"] == "begin" and not module.check_mode:
            begin(given["role"], given["manages"], given["folder"])
        elif given["state"] == "end" and not module.check_mode:
            end(given["role"], given["digest"], given["manages"], given["folder"])
    except OSError as error:
        module.fail_json(msg=f"{error.filename or given['folder']}: {error.strerror}")
    module.exit_json(changed=False, invocation={})


def remove(module: AnsibleModule) -> None:
    """Undo all roles but those to keep, and exit."""
    jobs = running_jobs()
    if jobs:
        named = " and ".join(f"job {job}" for job in jobs)
        fail(module, [fault(f"{named} runs on this host", f"tfctl stop {jobs[0]}", BUSY)])
    receipts = [
        receipt for receipt in read_all(module.params["folder"]) if receipt["role"] not in module.params["keep"]
    ]
    try:
        removed, kept = undo(receipts, module.params["folder"], act=not module.check_mode)
    except Failed as failed:
        fail(module, [fault(line, "", FAILED) for line in str(failed).splitlines()])
    module.exit_json(changed=bool(receipts), removed=removed, kept=kept, invocation={})


if __name__ == "__main__":
    main()
