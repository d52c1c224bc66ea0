"""Let Ansible's modules use the bytecode of installed files. On PYTHONPATH, Python imports this when it starts.

Ansible sends each module to Python as a zip archive, with the source of all that the module imports. Python compiles
that source in every run, which takes longer than the run itself. Here it takes the bytecode of the installed file, if
that has the same source. Nor does it look for garbage, which takes a sixth of the time that Ansible needs to start.
"""

from __future__ import annotations

import gc
import sys
import zipimport
from importlib.machinery import SourceFileLoader
from types import CodeType

ROOT = __file__.rpartition("/tests/")[0]

_compile = zipimport._compile_source  # type: ignore[attr-defined]


def _compiled(path: str, source: bytes) -> CodeType:
    """Return the code of a file in an archive: what zipimport calls for a file without bytecode."""
    _, _, name = path.rpartition(".zip/")
    if name.startswith("ansible"):
        own = f"{ROOT}/collections/{name}"
        for installed in (*(f"{folder}/{name}" for folder in sys.path), own):
            try:
                with open(installed, "rb") as file:
                    same = file.read() == source
                if same:
                    return SourceFileLoader(name, installed).get_code(name)  # type: ignore[return-value]
            except OSError:
                continue
    found: CodeType = _compile(path, source)
    return found


zipimport._compile_source = _compiled  # type: ignore[attr-defined]
gc.disable()
