"""The lookup control: values of the control machine that the roles use."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

# Ansible may run in an environment without tfctl. Add the directory that contains it: a checkout or site-packages.
sys.path.extend(str(each) for each in Path(__file__).resolve().parents if (each / "tfctl/errors.py").exists())

from tfctl.provision.control import VALUES

DOCUMENTATION = """
name: control
short_description: Return values of the control machine
description:
  - C(tools), the path of the lock file of the installer; C(wheels) and C(builds), the directories in the user's cache
    for downloaded wheels and for builds.
options:
  _terms: {description: The names of the values., required: true}
"""


class LookupModule(LookupBase):
    def run(self, terms: list[str], **_: object) -> list[object]:
        for term in terms:
            if term not in VALUES:
                raise AnsibleError(f"control: there is no {term}; choose from {', '.join(VALUES)}")
        return [VALUES[term]() for term in terms]
