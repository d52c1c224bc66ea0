#!/usr/bin/python
"""Create a file in a shared directory as the jobs' user, look for it on the other hosts, and delete it."""

from __future__ import annotations

DOCUMENTATION = """
module: shared_directory
short_description: Check that hosts share a directory
author: [the tfctl authors (!UNKNOWN)]
description:
  - C(created) creates an empty file with a random name, C(found) waits until it appears, and C(absent) deletes it.
  - Acts as O(uid), because a file server may map root to nobody. It does so without executing a program, because the
    tasks of jobs have this UID too, and could get out of their sandbox through a program that runs outside of it.
options:
  path: {type: path, required: true, description: The directory.}
  uid: {type: int, required: true, description: The UID and the GID with which to act.}
  state: {type: str, required: true, choices: [created, found, absent], description: What to do.}
  file: {type: str, default: '', description: 'For C(found) and C(absent): the name of the file.'}
  wait_s: {type: int, default: 0, description: 'For C(found): how long to wait.'}
"""

EXAMPLES = """
- name: Create a file
  tfctl.cluster.shared_directory:
    path: /srv/tfctl
    uid: 880
    state: created
  register: probe
"""

RETURN = """
file: {type: str, returned: success, description: The name of the file. Empty if it has not appeared.}
"""

import tempfile
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.forked import call, drop_root
from ansible_collections.tfctl.cluster.plugins.module_utils.install import finish

#: Seconds in which the file system must answer.
PATIENCE_S = 60


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "uid": {"type": "int", "required": True},
            "state": {"type": "str", "required": True, "choices": ["created", "found", "absent"]},
            "file": {"type": "str", "default": ""},
            "wait_s": {"type": "int", "default": 0},
        }
    )
    given = module.params
    patience = given["wait_s"] + PATIENCE_S
    finish(module, lambda: {"file": call(lambda: act(**given), patience, place=given["path"])})


def act(path: str, uid: int, state: str, file: str, wait_s: int) -> str:
    """Become the user, and return the name of the file, or "" if it has not appeared."""
    drop_root(uid, uid)
    if state == "created":
        return Path(tempfile.mkstemp(prefix=".tfctl-", dir=path)[1]).name
    if state == "absent":
        Path(path, file).unlink(missing_ok=True)
        return file
    ends = time.monotonic() + wait_s
    # A client may not see a new file before its cache of the directory expires. Listing the directory asks the server.
    while Path(path, file) not in Path(path).iterdir():
        if time.monotonic() > ends:
            return ""
        time.sleep(0.5)
    return file


if __name__ == "__main__":
    main()
