#!/usr/bin/python
"""Make a stack's environment match its lock, and link the stack's name to it."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_venv import Environment, spent

DOCUMENTATION = """
module: tfctl_environment
short_description: Make a stack's environment what its lock says
description:
  - Looks at every file that the packages of O(lock) brought, by name, size and time; a digest of an earlier run is not
    believed. One that differs has the whole environment built anew, beside its place, and moved there at the end.
  - Installs from O(archive) alone, without a network; each wheel is checked against its hash in O(lock). The modules in
    O(imports) are imported as an ordinary user, and must have the version named.
  - At the end the link at O(link) is switched. The environment that it led to stays, older ones go.
options:
  path: {type: path, required: true, description: Where the environment is.}
  link: {type: path, required: true, description: The stack's name on the host.}
  python: {type: path, required: true, description: The interpreter it is made with.}
  lock: {type: str, required: true, description: The text of the lock.}
  tools: {type: str, required: true, description: The text of the lock that names uv.}
  imports: {type: dict, required: true, description: Modules and the versions they must have.}
  archive: {type: path, description: The wheels, uv's among them, in one tar; it is removed. Not needed to look.}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "link": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "lock": {"type": "str", "required": True},
            "tools": {"type": "str", "required": True},
            "imports": {"type": "dict", "required": True},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    environment = Environment(**module.params)
    try:
        with spent(None if module.check_mode else environment.archive):
            wrong = environment.wrong()
            linked = environment.linked()
            changed = bool(wrong) or not linked
            if changed and not module.check_mode:
                if wrong:
                    environment.build()
                environment.switch()
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['path']}: {error.strerror}", invocation={})
    shown = "".join(f"{line}\n" for line in wrong) or (
        "" if linked else f"{module.params['link']} leads elsewhere, or scripts do not find tfctl_runtime\n"
    )
    diff = {"before_header": "wrong", "after_header": "right", "before": shown, "after": ""}
    module.exit_json(
        changed=changed, differs=changed, build=bool(wrong), wrong=wrong, diff=diff if changed else [], invocation={}
    )


if __name__ == "__main__":
    main()
