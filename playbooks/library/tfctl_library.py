#!/usr/bin/python
"""Load CUDA's runtime, cuDNN or NCCL as a job's process would, and read its version."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed

DOCUMENTATION = """
module: tfctl_library
short_description: Load a library as a job would, and compare its version
options:
  library: {type: str, required: true, choices: [cuda, cudnn, nccl], description: Which.}
  soname: {type: str, required: true, description: The name that the loader is asked for.}
  version: {type: str, required: true, description: What it must be.}
  exact: {type: bool, required: true, description: Whether a later one of the same major version will not do.}
"""

# cudnnGetVersion() returns the version; the other two write it to an address. CUDA's runtime needs the driver, which
# may not be loaded before a reboot: then use the version in its file name, libcudart.so.11.8.89.
PROBE = """
import ctypes, re, sys
library, function = ctypes.CDLL(sys.argv[1]), sys.argv[2]
if function == "cudnnGetVersion":
    ask = library.cudnnGetVersion
    ask.restype = ctypes.c_size_t
    print(ask())
    sys.exit()
value = ctypes.c_int()
code = getattr(library, function)(ctypes.byref(value))
if not code:
    print(value.value)
    sys.exit()
named = re.search(r"/libcudart[.]so[.](\\d+)[.](\\d+)[.]\\d+$", open("/proc/self/maps").read(), re.M)
if named is None:
    sys.exit(f"{function} returned {code}")
print(int(named[1]) * 1000 + int(named[2]) * 10)
"""
FUNCTIONS = {"cuda": "cudaRuntimeGetVersion", "cudnn": "cudnnGetVersion", "nccl": "ncclGetVersion"}


def main():
    module = AnsibleModule(
        argument_spec={
            "library": {"type": "str", "required": True, "choices": list(FUNCTIONS)},
            "soname": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "exact": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    try:
        found = ask(wanted["soname"], FUNCTIONS[wanted["library"]])
        asked = number(wanted["library"], wanted["version"])
        if found != asked and (wanted["exact"] or not is_later(found, asked)):
            raise Failed(f"{wanted['soname']} says that it is version {found}; {asked} was to be installed")
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    module.exit_json(changed=False, found=found, invocation={})


def ask(soname, function):
    """Return the version that the loaded library reports. Ask in a separate process: a broken library may crash it."""
    words = [sys.executable, "-I", "-c", PROBE, soname, function]
    done = subprocess.run(words, env={"PATH": os.defpath}, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise Failed(f"{soname} cannot be loaded: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}")
    return int(done.stdout)


def number(library, version):
    """Return the version as the library encodes it. CUDA leaves out the third part."""
    major, minor, patch = [*(int(part) for part in re.findall(r"\d+", version)), 0, 0][:3]
    if library == "cuda":
        return major * 1000 + minor * 10
    wide = major >= 9 if library == "cudnn" else (major, minor) >= (2, 9)
    return major * (10000 if wide else 1000) + minor * 100 + patch


def is_later(found, asked):
    """Return whether ``found`` is at least ``asked``, with the same major version, which the first digits hold."""
    return len(str(found)) == len(str(asked)) and str(found)[0] == str(asked)[0] and found >= asked


if __name__ == "__main__":
    main()
