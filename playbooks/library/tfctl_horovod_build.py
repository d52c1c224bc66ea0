#!/usr/bin/python
"""Build a Horovod wheel against a stack's TensorFlow and an MPI."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_horovod_build import Build
from ansible.module_utils.tfctl_machine import Failed

DOCUMENTATION = """
module: tfctl_horovod_build
short_description: Build Horovod as a wheel
description:
  - Builds for TensorFlow alone, from what is in O(archive) and without a network; nothing but the wheel is left.
options:
  wheel: {type: path, required: true, description: Where the wheel is left.}
  folder: {type: path, required: true, description: Where it is built; programs must run there.}
  environment: {type: path, required: true, description: The stack's environment, whose TensorFlow it is built against.}
  archive: {type: path, required: true, description: The source and the tools' wheels in one tar; it is removed.}
  cc: {type: str, required: true, description: The C compiler.}
  cxx: {type: str, required: true, description: The C++ compiler.}
  mpi: {type: str, required: true, description: Prefix of an Open MPI; empty, without MPI.}
  gloo: {type: bool, required: true, description: Whether Gloo is built.}
  gpu: {type: dict, description: 'Where CUDA and NCCL are, by these names; without it GPUs do not reduce themselves.'}
"""


def main():
    text, path = {"type": "str", "required": True}, {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            **dict.fromkeys(("wheel", "folder", "environment", "archive"), path),
            **dict.fromkeys(("cc", "cxx", "mpi"), text),
            "gloo": {"type": "bool", "required": True},
            "gpu": {"type": "dict"},
        }
    )
    try:
        Build(**module.params).run()
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['wheel']}: {error.strerror}", invocation={})
    module.exit_json(changed=True, invocation={})


if __name__ == "__main__":
    main()
