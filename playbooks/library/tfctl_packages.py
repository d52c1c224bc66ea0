#!/usr/bin/python
"""Install exact versions of packages in one transaction, after a dry run, and hold them."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_packages import Packages

DOCUMENTATION = """
module: tfctl_packages
short_description: Install exact packages in one transaction, and hold them
description:
  - Tries the transaction first (C(apt-get -s), C(dnf --assumeno)). One that would remove something, or bring another
    kernel, is refused. With check mode that trial is all that is done.
  - What it brought of NVIDIA's is put on hold (C(apt-mark hold), C(dnf versionlock)) and noted with its version in
    C(/var/lib/tfctl/held.json), which preflight compares at the next run.
options:
  component: {type: str, required: true, description: The role; its earlier holds are let go first.}
  packager: {type: str, required: true, choices: [apt-get, dnf], description: The host's package manager.}
  packages:
    description: NAME or NAME=VERSION, with * in VERSION; none, what the component has noted before.
    type: list
    elements: str
    required: true
  first: {type: list, elements: str, default: [], description: What has to be installed before them.}
  stream: {type: str, default: '', description: Module stream that dnf enables before.}
  sources_ready: {type: bool, default: true, description: Whether the package sources are set up yet.}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "component": {"type": "str", "required": True},
            "packager": {"type": "str", "required": True, "choices": ["apt-get", "dnf"]},
            "packages": {"type": "list", "elements": "str", "required": True},
            "first": {"type": "list", "elements": "str", "default": []},
            "stream": {"type": "str", "default": ""},
            "sources_ready": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        packages = Packages(*(wanted[key] for key in ("component", "packager", "packages", "first", "stream")))
        if packages.done():
            module.exit_json(changed=False, brought=[])
        if module.check_mode:
            module.exit_json(changed=True, brought=packages.trial() if wanted["sources_ready"] else [])
        module.exit_json(changed=True, brought=packages.bring())
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})


if __name__ == "__main__":
    main()
