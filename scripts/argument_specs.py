"""What the argument_specs of a role say about its options."""

from __future__ import annotations

import re
from typing import Any

#: Inventory variables that enable a role: it does not run if they are not set, so its own default is not that of an
#: inventory.
ENABLE = ("tfctl_firewall", "tfctl_shared_storage", "tfctl_datasets", "tfctl_ssh_mesh")
_VARIABLE = re.compile(r"(?P<meaning>.+) \((?P<variable>tfctl_\w+)\)\.", re.DOTALL)


def sentences(option: dict[str, Any]) -> list[str]:
    """Return the description of an option, as lines of Markdown."""
    told = option["description"]
    return [marked(each) for each in (told if isinstance(told, list) else [told])]


def setting(option: dict[str, Any]) -> tuple[str, str] | None:
    """Return the inventory variable that sets an option and what it means, or None if the option has none.

    The first sentence of the description that ends with a variable in parentheses names it: "How much (tfctl_x).".
    """
    told = sentences(option)
    for each in told:
        if match := _VARIABLE.fullmatch(each):
            others = (other for other in told if other is not each)
            return match["variable"], " ".join([match["meaning"] + ".", *others])
    return None


def marked(text: str) -> str:
    """Convert Ansible's C(code) to Markdown, on one line."""
    return re.sub(r"\bC\(([^()]*)\)", r"`\1`", " ".join(text.split()))
