"""When an NVIDIA GPU must not be used, by what nvidia-smi says of its memory.

plugins/module_utils/gpu_defects.py is a link to this file, which therefore imports nothing of tfctl.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Fields of --query-gpu and what is wrong if they are set. After a failed replacement, a card is to be exchanged; the
#: others end with a reset of the card. Sources: docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt (cards since Ampere) and
#: docs.nvidia.com/deploy/dynamic-page-retirement (cards before it).
DEFECTS = {
    "remapped_rows.failure": "a defective row of its memory could not be replaced: have the card exchanged",
    "remapped_rows.pending": "a defective row of its memory is replaced at the next reset: restart the host",
    "retired_pages.pending": "a defective page of its memory is retired at the next reset: restart the host",
}
FIELDS = tuple(DEFECTS)
#: nvidia-smi writes Yes or a number. What a card does not have is [N/A].
_SET = re.compile(r"Yes|[1-9]\d*")


def defect_of(cells: Mapping[str, str]) -> str:
    """Return what is wrong with a card, or "". ``cells``: its fields, without those that nvidia-smi does not know."""
    return next((text for field, text in DEFECTS.items() if _SET.fullmatch(cells.get(field, "").strip())), "")
