"""What to do about a module that a task cannot import."""

from __future__ import annotations

import re
from pathlib import Path

from tfctl.local.runtimes import Runtime

_MISSING = re.compile(r"^(?:ModuleNotFoundError|ImportError): No module named '?([A-Za-z_][\w.]*)'?$")
#: Distributions whose names differ from those of their modules.
_DISTRIBUTIONS = {
    "cv2": "opencv-python-headless", "sklearn": "scikit-learn", "skimage": "scikit-image", "PIL": "pillow",
    "yaml": "PyYAML",
}  # fmt: skip


def missing_module(line: str) -> str:
    """Return the module whose import fails, according to the last line of a traceback; otherwise ""."""
    found = _MISSING.match(line.strip())
    return found[1] if found else ""


def remedy(module: str, runtime: Runtime, jobfile: Path, requirements: Path | None) -> str:
    """Return where to add the module."""
    top, _, rest = module.partition(".")
    stack = runtime.stack
    if rest and stack is not None and top in stack.imports:
        return f"{top} {stack.imports[top]} does not have it: change the script, or `stack:` in {jobfile}"
    distribution = _DISTRIBUTIONS.get(top, top)
    if runtime.environment is not None:
        if requirements is not None:
            return f"add {distribution} to {requirements}"
        beside = jobfile.parent / "requirements.txt"
        return f"write {distribution} to {beside}, and add `requirements: requirements.txt` to {jobfile}"
    if top in ("tensorflow", "keras", "tf_keras"):
        return f"add `stack: tf2.15` to {jobfile}; or name a Python that has it: --python PATH"
    return f"install it in this Python: python -m pip install {distribution}"
