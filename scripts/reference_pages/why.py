"""The table of docs/troubleshooting.md that shows what `tfctl why` found in tests/lab/test_why.py."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from scripts.reference_pages.markdown import table

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/troubleshooting.md"
#: Written by the test (TFCTL_TEST_WHY).
RESULTS = ROOT / "tests/lab/why.json"
BEGIN, END = "<!-- begin of what tests/lab/test_why.py has found -->\n", "<!-- end of it -->\n"
#: The faults in words.
FAULTS = {
    "stop": "a task is stopped (SIGSTOP)",
    "drop": "packets of the other hosts are dropped (nftables)",
    "import": "a module is missing on one host",
    "input": "the input of one task waits for a FIFO",
    "spin": "a task computes without an end",
    "disk": "the disk of the output is full on one host",
    "none": "no fault",
}


def page() -> str:
    """Return the page with the table of the last results."""
    before, _, rest = (ROOT / PAGE).read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{_table(json.loads(RESULTS.read_text()))}\n{END}{after}"


def _table(results: Iterable[dict[str, str]]) -> str:
    counts: dict[str, dict[str, list[bool]]] = {fault: {} for fault in FAULTS}
    for result in results:
        counts[result["fault"]].setdefault(result["strategy"], []).append(result["wanted"] == result["found"])
    strategies = sorted({strategy for each in counts.values() for strategy in each})
    rows = [
        [words, *(_figure(counts[fault].get(strategy, [])) for strategy in strategies)]
        for fault, words in FAULTS.items()
    ]
    return table(["fault", *(f"`{strategy}`" for strategy in strategies)], rows)


def _figure(right: list[bool]) -> str:
    return f"{sum(right)} of {len(right)}" if right else ""
