#!/usr/bin/python
"""Load CUDA's runtime, cuDNN or NCCL as a job's process would, and read its version."""

from __future__ import annotations

DOCUMENTATION = """
module: library
short_description: Load a library as a job would, and compare its version
author: [the tfctl authors (!UNKNOWN)]
description:
  - Changes nothing. Loads O(soname) in a process without LD_LIBRARY_PATH, and asks it for its version.
options:
  library: {type: str, required: true, choices: [cuda, cudnn, nccl], description: The library.}
  soname: {type: str, required: true, description: "The name by which programs load it, such as C(libnccl.so.2)."}
  version: {type: str, required: true, description: The version that it must report.}
  exact: {type: bool, required: true, description: Whether a later version with the same major version is an error.}
"""

EXAMPLES = """
- name: Check that jobs find cuDNN
  tfctl.cluster.library:
    library: cudnn
    soname: libcudnn.so.8
    version: 8.9.4
    exact: false
"""

RETURN = """
found: {type: int, returned: success, description: "The version as the library encodes it, such as 8904 for 8.9.4."}
faults: {type: list, elements: dict, returned: failure, description: 'Why it failed: C(message), C(remedy), C(kind).'}
"""

import os
import re
import sys
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, finish, run

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


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "library": {"type": "str", "required": True, "choices": list(FUNCTIONS)},
            "soname": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "exact": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: compare(module.params))


def compare(asked: dict[str, Any]) -> dict[str, object]:
    wanted = encoded(asked["library"], asked["version"])
    found = reported(asked["soname"], FUNCTIONS[asked["library"]])
    if found != wanted and (asked["exact"] or not is_later(found, wanted)):
        raise ModuleFailed(f"{asked['soname']} is version {found}; {wanted} is required")
    return {"found": found}


def reported(soname: str, function: str) -> int:
    """Return the version that the library reports. A separate process loads it, because a broken library may crash."""
    words = [sys.executable, "-I", "-c", PROBE, soname, function]
    done = run(words, env={"PATH": os.defpath})
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1]
        raise ModuleFailed(f"{soname} cannot be loaded: {reason}")
    return int(done.stdout)


def encoded(library: str, version: str) -> int:
    """Return the version as the library encodes it. CUDA leaves out the third part."""
    major, minor, patch = [*(int(part) for part in re.findall(r"\d+", version)), 0, 0][:3]
    if library == "cuda":
        return major * 1000 + minor * 10
    wide = major >= 9 if library == "cudnn" else (major, minor) >= (2, 9)
    return major * (10000 if wide else 1000) + minor * 100 + patch


def is_later(found: int, wanted: int) -> bool:
    """Return whether ``found`` is later, with the same major version, which the first digits contain."""
    return len(str(found)) == len(str(wanted)) and str(found)[0] == str(wanted)[0] and found >= wanted


if __name__ == "__main__":
    main()
