"""Base types for the schemas in this folder."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)+$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Https = Annotated[str, Field(pattern=r"^https://")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Known(Strict):
    """A value with its origin. ``verified``: checked against the publisher's own; ``source``: where it was read."""

    verified: bool
    source: str
