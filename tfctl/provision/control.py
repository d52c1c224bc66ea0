"""The values of this machine that the playbooks use: a lock file, directories of the user's cache, and who runs them.

The plugins in playbooks/ import this module, possibly in an Ansible of the user's own. So it and what it imports need
only the standard library and PyYAML.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tfctl.model import stacks


def cache() -> Path:
    """Return tfctl's directory in the user's cache: the one of platformdirs, which an Ansible may lack, but a relative
    path in XDG_CACHE_HOME is invalid and ignored (XDG Base Directory Specification). Raise RuntimeError without a home.
    """
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tfctl"
    given = Path(os.environ.get("XDG_CACHE_HOME", "").strip())
    return (given if given.is_absolute() else Path.home() / ".cache") / "tfctl"


#: By their names for the lookup plugin control.
VALUES: Mapping[str, Callable[[], object]] = {
    "tools": lambda: str(stacks.TOOLS),
    "wheels": lambda: str(cache() / "wheels"),
    "builds": lambda: str(cache() / "built"),
    "root": lambda: os.geteuid() == 0,
}
