#!/usr/bin/python
"""The documentation of the action plugin due. Ansible looks for it here."""

from __future__ import annotations

DOCUMENTATION = """
module: due
short_description: Decide which roles of this collection run on a host
author: [the tfctl authors (!UNKNOWN)]
description:
  - Runs on the control machine. All of O(roles) run, unless their receipts hold. A receipt holds if the code of the
    roles, the variables of the role, and what it manages on the host (C(provision_manages)) are as when the role ran.
  - In check mode, all of O(roles) run. If the run has tags, those that these name run in any case, and no others.
  - Fails if there are O(faults).
options:
  roles: {type: dict, required: true, description: 'By role, whether the host is to have it.'}
  receipts: {type: list, elements: dict, required: true, description: 'The receipts of the host, as facts finds them.'}
  faults: {type: list, elements: dict, default: [], description: 'Faults that were found, as decide returns them.'}
  full: {type: bool, default: false, description: Whether all of O(roles) run.}
  live: {type: dict, default: {}, description: 'By role, whether it runs each time, whatever receipts say.'}
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
  description: What runs, each with the C(role), the C(entry) point, the C(reason), a C(digest), and what it C(manages).
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
