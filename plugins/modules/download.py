#!/usr/bin/python
"""Download a file to a host."""

from __future__ import annotations

DOCUMENTATION = """
module: download
short_description: Download a file
author: [the tfctl authors (!UNKNOWN)]
description:
  - Downloads O(url) to O(path), through the proxies that the role proxy has configured on the host. The module get_url
    would need them as variables, which Ansible writes on the command line of sudo, and a URL may contain a password.
  - In check mode, nothing is downloaded.
options:
  url: {type: str, required: true, description: 'The URL: https, http or file.'}
  path: {type: path, required: true, description: Where to write the file. Everybody can read it.}
  sha256: {type: str, required: true, description: The hash that the file must have.}
"""

EXAMPLES = """
- name: Download an archive
  tfctl.cluster.download:
    url: https://mirror.example/library.tar.xz
    path: /var/tmp/library.tar.xz
    sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
"""

RETURN = """
faults: {type: list, elements: dict, returned: failure, description: 'Why it failed: C(message), C(remedy), C(kind).'}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import finish
from ansible_collections.tfctl.cluster.plugins.module_utils.share import fetch


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "sha256": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: download(module.params, act=not module.check_mode))


def download(given: dict[str, Any], act: bool) -> dict[str, object]:
    """Raises ModuleFailed, which names the URL."""
    path = Path(given["path"])
    if act:
        fetch(given["url"], path, given["sha256"])
        path.chmod(0o644)
    return {"changed": True}


if __name__ == "__main__":
    main()
