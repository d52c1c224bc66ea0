"""The lookup control: values of the control machine that the roles use."""

from __future__ import annotations

DOCUMENTATION = """
name: control
short_description: Return values of the control machine
description:
  - C(tools) is the path of the lock file of uv, which installs wheels on hosts.
  - C(wheels) and C(builds) are the directories in the user's cache for downloaded wheels and for builds.
  - C(root) is whether root runs Ansible.
options:
  _terms:
    description: The names of the values.
    type: list
    elements: str
    required: true
    choices: [tools, wheels, builds, root]
"""

EXAMPLES = """
- name: Show where downloaded wheels are kept
  ansible.builtin.debug:
    msg: "{{ lookup('tfctl.cluster.control', 'wheels') }}"
"""

RETURN = """
_raw:
  description: The values, in the order of their names.
  type: list
  elements: raw
"""

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase
from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision.control import VALUES


class LookupModule(LookupBase):
    def run(self, terms: list[str], **_: object) -> list[object]:
        for term in terms:
            if term not in VALUES:
                raise AnsibleError(f"control: there is no {term}; choose from {', '.join(VALUES)}")
        return [VALUES[term]() for term in terms]
