#!/usr/bin/python
"""Build software from its source with a shell script, once for all hosts of a kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_build import build
from ansible.module_utils.tfctl_install import finish

DOCUMENTATION = """
module: tfctl_build
short_description: Build software from its source
description:
  - Runs O(script) in the empty directory O(directory), which is deleted afterwards. The build runs at low priority and
    continues if the control machine is interrupted. A later run waits for it and takes its result.
  - Reports the compiler's errors if the script fails.
options:
  name: {type: str, required: true, description: What is built, for messages.}
  script:
    description: A shell script. It reads C($ARCHIVE) and leaves the file C($RESULT).
    type: str
    required: true
  directory: {type: path, required: true, description: Where to build. Programs must be allowed to run there.}
  archive: {type: path, required: true, description: The source on this host. It is deleted.}
  result: {type: path, required: true, description: Where to leave what was built.}
"""


def main() -> None:
    text, path = {"type": "str", "required": True}, {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={"name": text, "script": text, "directory": path, "archive": path, "result": path}
    )
    finish(module, lambda: run(module.params), Path(module.params["archive"]))


def run(params: dict[str, Any]) -> dict[str, object]:
    build(**params)
    return {"changed": True}


if __name__ == "__main__":
    main()
