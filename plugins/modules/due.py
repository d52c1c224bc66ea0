#!/usr/bin/python
"""The documentation of the action plugin due. Ansible looks for it here."""

from __future__ import annotations

DOCUMENTATION = """
module: due
short_description: Decide which roles of this collection run on a host
author: [the tfctl authors (!UNKNOWN)]
description:
  - Runs on the control machine. A role runs unless its receipt holds. It does if the code of the role, its variables
    and what it manages on the host are the same as when the role ran.
  - In check mode, all of O(roles) run. If a tag of the run names a role, it runs in any case.
  - Fails if there are O(faults).
options:
  roles: {type: dict, required: true, description: 'By role, whether the host is to have it.'}
  receipts: {type: list, elements: dict, required: true, description: 'The receipts of the host, as facts finds them.'}
  faults: {type: list, elements: dict, default: [], description: 'Faults that were found, as decide returns them.'}
  full: {type: bool, default: false, description: Whether all of O(roles) run.}
  unskipped: {type: dict, default: {}, description: 'By role, whether it runs even if its receipt holds.'}
  momentary:
    description: By role, the variables on which its receipt does not depend. The digest has their defaults instead.
    type: dict
    default: {}
  connected: {type: bool, default: false, description: 'Returned unchanged, for a task that groups the hosts.'}
"""

EXAMPLES = """
- name: Decide which roles run
  tfctl.cluster.due:
    roles: {time_sync: true, firewall: "{{ inventory_hostname in groups.cluster }}"}
    receipts: "{{ preflight_found.seen.receipts }}"
  register: provision_due

- name: Show the roles that run, and why
  ansible.builtin.debug:
    msg: "{{ item.key }}: {{ item.value.reason }}"
  loop: "{{ provision_due.roles | dict2items }}"
"""

RETURN = """
roles:
  description: The roles that run, each with the C(reason), the C(digest) of its inputs, and what it C(manages).
  type: dict
  returned: success
drifts:
  description: What has changed on the host since its roles ran, in sentences.
  type: list
  elements: str
  returned: success
connected: {type: bool, returned: success, description: What the task was given.}
faults: {type: list, elements: dict, returned: failure, description: What the task was given.}
"""
