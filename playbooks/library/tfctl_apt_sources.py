#!/usr/bin/python
"""Find the components that apt lacks of the Debian archives among its package sources."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_apt_sources import lines_for
from ansible.module_utils.tfctl_fault import FAILED, fail, fault
from ansible.module_utils.tfctl_transaction import TransactionError

DOCUMENTATION = """
module: tfctl_apt_sources
short_description: Find missing components of the Debian archive
description:
  - Returns an entry for each Debian archive that apt reads, with those of O(components) that it lacks, and with the
    same URL and key. The module ansible.builtin.apt_repository needs to be told both.
  - Changes nothing but the package lists, which it updates on an image that has none.
options:
  components: {type: list, elements: str, required: true, description: "Components, such as C(non-free)."}
  file: {type: path, required: true, description: The file for the entries. Its present content is ignored.}
"""

RETURN = """
content: {type: str, returned: success, description: What the file has to contain.}
"""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "components": {"type": "list", "elements": "str", "required": True},
            "file": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    asked = module.params
    try:
        content = lines_for(asked["components"], asked["file"], update=not module.check_mode)
    except TransactionError as error:
        fail(module, [fault(str(error), error.remedy, FAILED)])
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}", invocation={})
    module.exit_json(changed=False, content=content, invocation={})


if __name__ == "__main__":
    main()
