"""journalctl for the tree's journal: `fake_journalctl.py TREE …`, with the words that the node part uses."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    journal = Path(sys.argv[1]) / "journal.jsonl"
    words = sys.argv[2:]
    if "--sync" in words:
        return 0
    options = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
    wanted: dict[str, set[str]] = {}
    for word in words:
        if "=" in word and not word.startswith("-"):
            wanted.setdefault(word.partition("=")[0], set()).add(word.partition("=")[2])
    if "-u" in words:
        wanted["_SYSTEMD_UNIT"] = {words[words.index("-u") + 1]}
    seen = 0
    while True:
        # What stands behind the last newline is being written at this moment.
        text = journal.read_text().rpartition("\n")[0] if journal.exists() else ""
        records = [json.loads(line) for line in text.splitlines()]
        found = [one for one in records[seen:] if all(one.get(name) in values for name, values in wanted.items())]
        seen = len(records)
        found = [one for one in found if _in_time(one, options)]
        if "--cursor" in options:
            cursors = [one["__CURSOR"] for one in found]
            found = found[cursors.index(options.pop("--cursor")) :]
        if "--lines" in options:
            count = int(options.pop("--lines"))
            found = found[-count:] if count else []
        elif "-f" in words and "--no-tail" not in options:
            found = found[-10:]
            options["--no-tail"] = ""
        for one in found:
            print(one["MESSAGE"] if "cat" in words else json.dumps(one), flush=True)
        if "-f" not in words:
            return 0
        time.sleep(0.02)


def _in_time(record: dict[str, Any], options: dict[str, str]) -> bool:
    at = int(record["__REALTIME_TIMESTAMP"]) / 1e6
    since, until = options.get("--since", "@0"), options.get("--until", "@9e9")
    return (since[0] != "@" or at >= float(since[1:])) and at <= float(until[1:])


sys.exit(main())
