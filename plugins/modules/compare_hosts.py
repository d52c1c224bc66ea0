#!/usr/bin/python
"""The documentation of the action plugin compare_hosts. Ansible looks for it here."""

from __future__ import annotations

DOCUMENTATION = """
module: compare_hosts
short_description: Find what is wrong between the hosts of a play
author: [the tfctl authors (!UNKNOWN)]
description:
  - Runs on the control machine, once for all hosts. Before it, each host runs decide and registers C(preflight_found).
  - Never fails. Warns about what may be wrong between several hosts.
options:
  canary: {type: raw, required: true, description: How many hosts to begin with; an empty string for the default.}
  batch: {type: raw, required: true, description: How many hosts to change at a time; an empty string for the default.}
"""

EXAMPLES = """
- name: Inspect the host
  tfctl.cluster.decide:
    uid: 880
    shared: [/srv/tfctl]
  register: preflight_found

- name: Compare the hosts with each other
  tfctl.cluster.compare_hosts:
    canary: ""
    batch: 10
  run_once: true
  register: preflight_compared
"""

RETURN = """
faults_by_host:
  description: The faults of each host that has some. Each fault has C(message), C(remedy) and C(kind).
  type: dict
  returned: success
order:
  description: The numbers of hosts to work on, C(canary) and C(batch), for the filter serial.
  type: dict
  returned: unless O(canary) or O(batch) cannot be used
"""
