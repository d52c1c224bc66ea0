#!/usr/bin/python
"""Build Open MPI from source, and pack what it installs into one tar."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_openmpi import build
from ansible.module_utils.tfctl_venv import spent

DOCUMENTATION = """
module: tfctl_openmpi_build
short_description: Build Open MPI from its source
description:
  - Compares the hash of O(source), configures, builds and installs it in a directory that is gone afterwards.
options:
  source: {type: path, required: true, description: The tarball; it is removed.}
  sha256: {type: str, required: true, description: Its hash.}
  prefix: {type: path, required: true, description: Where it will lie, on every host.}
  cc: {type: str, required: true, description: The C compiler.}
  cxx: {type: str, required: true, description: The C++ compiler.}
  made: {type: path, required: true, description: The tar of what it installs.}
"""


def main():
    text, path = {"type": "str", "required": True}, {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            **dict.fromkeys(("source", "prefix", "made"), path),
            **dict.fromkeys(("sha256", "cc", "cxx"), text),
        }
    )
    try:
        with spent(module.params["source"]):
            build(**module.params)
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['made']}: {error.strerror}", invocation={})
    module.exit_json(changed=True, invocation={})


if __name__ == "__main__":
    main()
