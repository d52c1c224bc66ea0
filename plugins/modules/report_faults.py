#!/usr/bin/python
"""The documentation of the action plugin report_faults. Ansible looks for it here."""

from __future__ import annotations

DOCUMENTATION = """
module: report_faults
short_description: Fail with all faults that were found
author: [the tfctl authors (!UNKNOWN)]
description:
  - Runs on the control machine. Succeeds if O(faults) is empty.
  - Tasks before it find faults without failing, so that a user sees all of them at once.
options:
  faults:
    description: What is wrong on the host.
    type: list
    elements: dict
    required: true
    suboptions:
      message: {type: str, required: true, description: What is wrong.}
      remedy:
        description: What a user can do about it, or empty. tfctl puts the name of the host in place of C({host}).
        type: str
        required: true
      kind:
        description:
          - C(inventory), a variable has a value that cannot be used; C(busy), a job runs; C(unfit), the host lacks
            something; or C(failed), the work itself failed.
          - It decides with which exit code tfctl ends.
        type: str
        required: true
        choices: [inventory, busy, unfit, failed]
"""

EXAMPLES = """
- name: Refuse hosts without the disk for data
  tfctl.cluster.report_faults:
    faults:
      - message: nothing is mounted on /data
        remedy: mount the disk on {host}, then try again
        kind: unfit
  when: "'/data' not in ansible_facts.mounts | map(attribute='mount')"
"""

RETURN = """
faults: {type: list, elements: dict, returned: failure, description: What the task was given.}
"""
