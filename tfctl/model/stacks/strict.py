"""What the schemas of this folder are made from."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)+$")]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
