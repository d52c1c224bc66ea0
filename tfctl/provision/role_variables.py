"""The variables of roles, and those of the inventory that set them."""

from __future__ import annotations

import re
from pathlib import Path

_DEFAULT = re.compile(r'^(\w+): "\{\{ *(tfctl_\w+)', re.MULTILINE)


def inventory_variables(roles: Path) -> dict[str, str]:
    """Return the variable of the inventory that sets each variable of the roles in this directory, by its name."""
    files = roles.glob("*/defaults/main.yml")
    return {name: setter for path in files for name, setter in _DEFAULT.findall(path.read_text(encoding="utf-8"))}
