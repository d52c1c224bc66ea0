#!/usr/bin/python
"""Set up a host's package sources for NVIDIA's software: more components of Debian, or NVIDIA's signing key."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_apt_sources import lines_for
from ansible.module_utils.tfctl_fetch import fetch
from ansible.module_utils.tfctl_machine import Failed, beside, converge, make_parents
from ansible.module_utils.tfctl_openpgp import fingerprint

DOCUMENTATION = """
module: tfctl_source
short_description: Let apt or dnf reach NVIDIA's software
description:
  - For each Debian archive that apt reads, adds an entry with those of O(components) that it lacks, signed by the same
    key. The host's own files are not touched.
  - Fetches O(key_url), and takes it only when its fingerprint is O(fingerprint).
options:
  components: {type: list, elements: str, required: true, description: Of the Debian archive; none on other systems.}
  components_file: {type: path, required: true, description: Where entries with them go.}
  key_url: {type: str, default: '', description: Where NVIDIA's key is; empty for none.}
  fingerprint: {type: str, default: '', description: What the key must be.}
  key_file: {type: path, required: true, description: Where the key goes.}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "components": {"type": "list", "elements": "str", "required": True},
            "components_file": {"type": "path", "required": True},
            "key_url": {"type": "str", "default": ""},
            "fingerprint": {"type": "str", "default": ""},
            "key_file": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    wanted, act, changes = module.params, not module.check_mode, []
    try:
        if wanted["components"]:
            content = lines_for(wanted["components"], wanted["components_file"], update=act)
            changes += converge([{"file": wanted["components_file"], "content": content}], act)
        if wanted["key_url"] and not is_key(Path(wanted["key_file"]), wanted["fingerprint"]):
            changes.append(wanted["key_file"])
            if act:
                bring_key(wanted["key_url"], wanted["fingerprint"], Path(wanted["key_file"]))
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}", invocation={})
    module.exit_json(changed=bool(changes), invocation={})


def is_key(path, wanted):
    with contextlib.suppress(OSError, ValueError):
        return fingerprint(path.read_bytes()) == wanted
    return False


def bring_key(url, wanted, path):
    """Fetch the key. Raises Failed and leaves no file if its fingerprint is not the wanted one."""
    make_parents(path)
    part = beside(path)
    fetch(url, part)
    try:
        found = fingerprint(part.read_bytes())
        if found != wanted:
            raise Failed(f"{url} is key {found}; {wanted} was asked for", "see who changed it")
        part.chmod(0o644)
        part.replace(path)
    except ValueError as fault:
        raise Failed(f"{url}: {fault}") from fault
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
