"""Types of the values in this folder's YAML files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

Version = Annotated[str, re.compile(r"^\d+(\.\d+)+$")]
Sha256 = Annotated[str, re.compile(r"^[0-9a-f]{64}$")]
Https = Annotated[str, re.compile(r"^https://")]
#: Major and minor version of a Python.
Python = Annotated[str, re.compile(r"^3\.\d+$")]


@dataclass(frozen=True)
class SourcedValue:
    """A value with its origin. ``verified``: its publisher states it; ``sources``: who states it, independently of each
    other."""

    verified: bool
    sources: tuple[str, ...]

    @property
    def trusted(self) -> bool:
        """Return whether it is used without ``tfctl_allow_unverified``: two independent sources do not err alike."""
        return self.verified or len(self.sources) > 1
