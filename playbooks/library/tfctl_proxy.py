#!/usr/bin/python
"""Check that the proxies of a host are valid URLs and that they answer."""

from __future__ import annotations

import re
import socket

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_fault import INVENTORY, fail, fault

DOCUMENTATION = """
module: tfctl_proxy
short_description: See that proxies answer
description:
  - Changes nothing. Connects to each of O(proxies), and says nothing to it.
options:
  proxies: {type: dict, required: true, description: Addresses by the variable that names them; or nothing.}
"""

FORM = re.compile(r"https?://(?:[^@/\s]+@)?(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})/?")
LIMIT_S = 10


def main():
    module = AnsibleModule(argument_spec={"proxies": {"type": "dict", "required": True}}, supports_check_mode=True)
    proxies = module.params["proxies"]
    faults = [found for name, address in proxies.items() if address for found in faults_of(name, address)]
    if faults:
        fail(module, faults)
    module.exit_json(changed=False, invocation={})


def faults_of(name, address):
    found = FORM.fullmatch(address)
    if not found:
        yield fault(f"{name} is not an address", "write http://HOST:PORT", INVENTORY)
        return
    place = f"{found['host']}:{found['port']}"
    try:
        socket.create_connection((found["host"].strip("[]"), int(found["port"])), LIMIT_S).close()
    except (OSError, OverflowError) as error:
        message = f"the proxy {place} ({name}) does not answer: {getattr(error, 'strerror', None) or error}"
        yield fault(message, f"start it, or correct {name}")


if __name__ == "__main__":
    main()
