"""When an NVIDIA GPU must not be used, and when a person should look at it, by what nvidia-smi says of it.

plugins/module_utils/gpu_defects.py is a link to this file, which therefore imports nothing of tfctl.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Rule(NamedTuple):
    """When a card has a problem. ``fields`` of --query-gpu: its present name, then those of old drivers.

    ``text``: what is wrong; {} stands for the number in the field. ``bits``: for a mask, the bits of which one is set;
    any other field is Yes or a number above 0. ``defect``: whether the card must not be used.
    """

    fields: tuple[str, ...]
    text: str
    bits: int = 0
    defect: bool = False


#: Up to driver 530, clocks_event_reasons had the second name.
_CLOCKS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
#: Of the rules for the same field, the first that applies.
RULES = (
    # docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, for cards since Ampere: after a failed replacement, the card is to
    # be exchanged; what is pending ends with a reset.
    Rule(
        ("remapped_rows.failure",),
        "a defective row of its memory could not be replaced: have the card exchanged",
        defect=True,
    ),
    Rule(
        ("remapped_rows.pending",),
        "a defective row of its memory is replaced at the next reset: restart the host",
        defect=True,
    ),
    # docs.nvidia.com/deploy/dynamic-page-retirement, for cards before Ampere.
    Rule(
        ("retired_pages.pending",),
        "a defective page of its memory is retired at the next reset: restart the host",
        defect=True,
    ),
    # Both documents: the driver ends the programs that used this memory, and new ones may use the card. If it has to be
    # reset, one of the fields above says so.
    Rule(
        ("ecc.errors.uncorrected.volatile.total",),
        "its memory has had {} errors since the last reset that ECC could not correct: what used it was ended",
    ),
    # The first document, "RMA policy thresholds for SRAM failure modes". The driver compares the errors of the card's
    # whole life with the threshold (bThresholdExceeded in docs.nvidia.com/deploy/nvml-api).
    Rule(
        ("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",),
        "its internal memory has had more errors than NVIDIA tolerates: run NVIDIA's field diagnostic, or have it "
        "exchanged",
    ),
    # docs.nvidia.com/deploy/nvml-api, NvmlClocksEventReasons: with each of these, the hardware reduces the clocks by
    # half or more, and also sets 0x08. The other bits are no problem: an idle card, limits that its owner has set, and
    # the limits of power and temperature that the driver keeps under load.
    Rule(
        _CLOCKS, "the hardware reduces its clocks by half or more, because it is too hot: check the cooling", bits=0x40
    ),
    Rule(
        _CLOCKS,
        "the hardware reduces its clocks by half or more, because the power supply asks for it (power brake)",
        bits=0x80,
    ),
    Rule(
        _CLOCKS,
        "the hardware reduces its clocks by half or more: check its power supply and cooling if this lasts",
        bits=0x08,
    ),
)
#: The fields to ask for: those of defects, those of what a person should look at, and all.
DEFECT_FIELDS = tuple(dict.fromkeys(field for rule in RULES if rule.defect for field in rule.fields))
NOTICE_FIELDS = tuple(dict.fromkeys(field for rule in RULES if not rule.defect for field in rule.fields))
FIELDS = (*DEFECT_FIELDS, *NOTICE_FIELDS)
#: What a card does not have is [N/A].
_SET = re.compile(r"Yes|[1-9]\d*")
_MASK = re.compile(r"0x[0-9A-Fa-f]+")


def defect_of(cells: Mapping[str, str]) -> str:
    """Return what is wrong with a card that must not be used, or "". ``cells``: its fields, without those that
    nvidia-smi does not know."""
    return next((rule.text for rule in RULES if rule.defect and _applies(rule, cells)), "")


def notices_of(cells: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a person should look at, although the card may be used. ``cells``: as for `defect_of`."""
    found: dict[tuple[str, ...], str] = {}
    for rule in RULES:
        if not rule.defect and _applies(rule, cells):
            found.setdefault(rule.fields, rule.text.format(_cell(rule, cells)))
    return tuple(found.values())


def _applies(rule: Rule, cells: Mapping[str, str]) -> bool:
    cell = _cell(rule, cells)
    if rule.bits:
        return bool(_MASK.fullmatch(cell) and int(cell, 16) & rule.bits)
    return bool(_SET.fullmatch(cell))


def _cell(rule: Rule, cells: Mapping[str, str]) -> str:
    return next((cells[field].strip() for field in rule.fields if field in cells), "")
