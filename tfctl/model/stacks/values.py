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
class Known:
    """A value with its origin. ``verified``: checked against the publisher's own; ``source``: where it was read."""

    verified: bool
    source: str
