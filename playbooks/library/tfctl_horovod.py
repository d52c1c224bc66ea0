#!/usr/bin/python
"""Install a built Horovod in its own directory and make a stack's environment use it, or use none."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_horovod import Horovod
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_venv import spent

DOCUMENTATION = """
module: tfctl_horovod
short_description: Put a built Horovod beside a stack's environment
description:
  - Looks at every file that the wheel brought, by name, size and time. One that differs has all of it unpacked anew
    from O(wheel), beside its place, each file compared with its hash there, compiled, and imported as an ordinary user.
  - One line in the environment's C(site-packages) has Python look there; what the stack's lock brought stays as it is.
options:
  environment: {type: path, required: true, description: The stack's environment.}
  home: {type: str, required: true, description: The directory that it lies in; empty for none.}
  version: {type: str, default: '', description: The release.}
  mpi: {type: bool, default: false, description: Whether it must be built with MPI.}
  gloo: {type: bool, default: false, description: Whether it must be built with Gloo.}
  wheel: {type: path, description: Its wheel, on this host; it is removed. Not needed to look.}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "environment": {"type": "path", "required": True},
            "home": {"type": "str", "required": True},
            "version": {"type": "str", "default": ""},
            "mpi": {"type": "bool", "default": False},
            "gloo": {"type": "bool", "default": False},
            "wheel": {"type": "path"},
        },
        supports_check_mode=True,
    )
    horovod = Horovod(**module.params)
    try:
        with spent(None if module.check_mode else horovod.wheel):
            wrong, linked = horovod.wrong(), horovod.linked()
            if not module.check_mode:
                if wrong:
                    horovod.unpack()
                if wrong or not linked:
                    horovod.link()
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['home']}: {error.strerror}", invocation={})
    changed = bool(wrong) or not linked
    shown = "".join(f"{line}\n" for line in wrong) or f"{horovod.pth} is not as it should be\n"
    diff = {"before_header": "wrong", "after_header": "right", "before": shown, "after": ""}
    module.exit_json(changed=changed, differs=changed, unpack=bool(wrong), diff=diff if changed else [], invocation={})


if __name__ == "__main__":
    main()
