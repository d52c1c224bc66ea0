#!/usr/bin/python
"""The documentation of the action plugin decide. Ansible looks for it here."""

from __future__ import annotations

DOCUMENTATION = """
module: decide
short_description: Report everything that prevents what a host is to become, and decide how to get there
author: [the tfctl authors (!UNKNOWN)]
description:
  - Gathers the facts of the host with the module facts, which changes nothing, and decides on the control machine.
  - If the host cannot be provisioned, returns RV(faults) instead of RV(decision), each with its remedy, for
    report_faults or due. The task itself succeeds.
  - Relative paths in O(stack_dirs), O(requirements) and O(preferences.nvidia_key_file) begin at the directory of the
    inventory.
  - Writes lock files for O(requirements) on the control machine, except in check mode.
options:
  uid: {type: int, required: true, description: UID and GID of the job user and its group.}
  shared: {type: list, elements: str, required: true, description: Directories that jobs write to.}
  operators: {type: list, elements: str, default: [], description: Who may run jobs; empty for the login user.}
  stack: {type: str, default: '', description: 'The stack of the host, or C(none).'}
  stack_dirs: {type: list, elements: str, default: [], description: Directories with stacks of your own.}
  pythons: {type: list, elements: str, default: [], description: Interpreters on the host that stacks may use.}
  trees: {type: list, elements: str, default: [], description: Directories of CPython to send to hosts that need one.}
  address: {type: str, default: '', description: Where the other hosts reach this one.}
  time_sync: {type: bool, default: false, description: Whether provisioning will synchronize the clock.}
  ports: {type: str, default: '', description: 'The ports of jobs, such as 2222-2299.'}
  shared_storage: {type: str, default: '', description: How provisioning mounts or checks a shared directory.}
  requirements: {type: list, elements: str, default: [], description: Requirements files of jobs.}
  index_url:
    description: The package index for O(requirements), in place of that of pip's settings. It is not logged.
    type: str
    default: ''
  python_mirror: {type: str, default: '', description: Where uv gets CPythons from. It is not logged.}
  explain: {type: bool, default: false, description: 'Return RV(explained), and no faults of the host.'}
  preferences:
    description: The settings that choose between several ways. The role preflight documents each value.
    type: dict
    default: {}
    suboptions:
      toolchain: {type: bool, default: false, description: Whether to install a compiler for extensions.}
      horovod: {type: bool, default: false, description: Whether to install the Horovod of the stack.}
      openmpi: {type: str, default: auto, description: 'The MPI for Horovod: auto, distribution, source or none.'}
      openmpi_url: {type: str, default: '', description: 'The URL of the source of Open MPI; empty for the publisher.'}
      edition: {type: str, default: auto, description: 'The edition of the stack: auto, cpu or gpu.'}
      driver: {type: str, default: auto, description: 'The NVIDIA driver: auto, a branch such as 580, or none.'}
      driver_method: {type: str, default: auto, description: 'Where it is from: auto, repo or distribution.'}
      cuda_method: {type: str, default: auto, description: 'auto, wheels, repo, distribution or archive.'}
      cudnn_method: {type: str, default: auto, description: 'auto, wheels, repo, distribution or archive.'}
      nccl_method: {type: str, default: auto, description: 'auto, wheels, repo, distribution or archive.'}
      nvidia_mirror: {type: str, default: '', description: A mirror to use instead of NVIDIA's server.}
      nvidia_key_file:
        description: An ASCII-armored file of the control machine with the key that signs NVIDIA's repository.
        type: str
        default: ''
      allow_unverified:
        description: The names of unverified keys and hashes to accept. C(all) accepts all of them.
        type: list
        elements: str
        default: []
"""

EXAMPLES = """
- name: Inspect the host
  tfctl.cluster.decide:
    uid: 880
    shared: [/srv/tfctl]
    stack: tf2.15
    preferences: {edition: cpu}
  register: preflight_found

- name: Show what the host would get
  ansible.builtin.debug:
    var: preflight_found.decision
  when: preflight_found.decision is defined
"""

RETURN = """
seen:
  description: The facts, which tfctl/provision/decide/facts.py documents.
  type: dict
  returned: unless a setting cannot be used
decision:
  description: What was chosen, which tfctl/provision/decide/decision.py documents.
  type: dict
  returned: if the host can be provisioned
requirements:
  description: What the role requirements installs. Each has C(lock), C(text) and C(path).
  type: list
  elements: dict
  returned: with RV(decision)
compared:
  description: What compare_hosts compares.
  type: dict
  returned: with RV(seen), except for O(explain)
faults:
  description: What prevents provisioning. Each has C(message), C(remedy) and C(kind).
  type: list
  elements: dict
  returned: if the host cannot be provisioned
explained:
  description: What each stack would be on the host, which tfctl/provision/explanation.py documents.
  type: dict
  returned: with O(explain)
"""
