#!/usr/bin/python
"""Unpack an archive with a known hash, or CUDA's runfile, into its own directory."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_unpacked import Unpacked

DOCUMENTATION = """
module: tfctl_archive
short_description: Unpack a hashed archive into a directory of its own
description:
  - Fetches O(url), compares its hash, unpacks it beside O(path) and moves it there at the end. A note in the directory
    says which archive it came from; a directory whose note is another one is made anew.
options:
  url: {type: str, required: true, description: Where it is.}
  sha256: {type: str, required: true, description: What its hash must be.}
  path: {type: path, required: true, description: The directory that is made.}
  kind: {type: str, required: true, choices: [tar, runfile], description: runfile is CUDA's own.}
  library: {type: str, required: true, description: The shared library that must be in its lib.}
"""


def main():
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            **dict.fromkeys(("url", "sha256", "library"), text),
            "path": {"type": "path", "required": True},
            "kind": {**text, "choices": ["tar", "runfile"]},
        },
        supports_check_mode=True,
    )
    unpacked = Unpacked(**module.params)
    changed = not unpacked.done()
    try:
        if changed and not module.check_mode:
            unpacked.bring()
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['path']}: {error.strerror}", invocation={})
    module.exit_json(changed=changed, invocation={})


if __name__ == "__main__":
    main()
