#!/usr/bin/python
"""Write a random word to a directory, or read another host's word there, to prove that the directory is shared."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_fault import FAILED, fail, fault

DOCUMENTATION = """
module: tfctl_nonce
short_description: See that a directory is the same on all hosts
description:
  - C(written) leaves a random word there and returns C(name) and C(text); C(read) finds it; C(absent) takes it away.
options:
  folder: {type: path, required: true, description: The directory.}
  state: {type: str, required: true, choices: [written, read, absent], description: What to do here.}
  uid: {type: int, required: true, description: "Who writes, by number: a server may take root for nobody."}
  name: {type: str, default: '', description: The file.}
  text: {type: str, default: '', description: What it must say.}
"""

LIMIT_S = 20  # a client may not see a new file until its directory cache expires
HELPS = "on its server, give it to that number, the job user's (tfctl_uid)"


def main():
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "state": {"type": "str", "required": True, "choices": ["written", "read", "absent"]},
            "uid": {"type": "int", "required": True},
            "name": {"type": "str", "default": ""},
            "text": {"type": "str", "default": ""},
        }
    )
    wanted, found = module.params, {}
    path = Path(wanted["folder"], wanted["name"])
    if wanted["state"] == "written":
        found = {"name": f".tfctl-{secrets.token_hex(8)}", "text": secrets.token_hex(16)}
        as_user(module, ["tee", str(path / found["name"])], found["text"])
    elif wanted["state"] == "absent":
        as_user(module, ["rm", "-f", str(path)])
    elif not is_read(path, wanted["text"]):
        message = f"{wanted['folder']} is not the directory that the other hosts have: what one wrote is not there"
        fail(module, [fault(message, f"see what is mounted: findmnt -T {wanted['folder']}", FAILED)])
    module.exit_json(changed=False, **found)


def as_user(module, command, data=None):
    """Run a command as the job user, or as root while root still owns the directory."""
    user = module.params["uid"] if Path(module.params["folder"]).stat().st_uid else 0
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
    code, _, said = module.run_command(words, data=data, binary_data=True, cwd="/", umask=0o022)
    if code:
        message = f"user {user} cannot write to {module.params['folder']}: {said.strip() or command[0]}"
        fail(module, [fault(message, HELPS, FAILED)])


def is_read(path, text):
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # noqa: PTH208  has the client ask its server again
            if path.read_text(encoding="utf-8") == text:
                return True
        time.sleep(0.5)
    return False


if __name__ == "__main__":
    main()
