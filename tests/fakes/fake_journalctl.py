"""journalctl for the tree's journal: `fake_journalctl.py TREE …`, with the words that the node part uses.

TREE/journald is the state of journald. While the file `stopped` is there, journald does not run: what units print
waits in `queue.jsonl`, and `--sync` waits too. While the file `broken` is there, `--sync` fails. While the file
`dropping` is there, lines of units exceed journald's rate limit (fake_systemctl). While the file `damaged` is there,
reading hangs at an entry whose message contains the text in it, as at a damaged block of a disk. Tree.vacuum deletes
the oldest entries; `--cursor` with the cursor of such an entry begins with the first entry after it, as in
journalctl(1).
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import Any

#: How often (ms) to look for new lines.
LOOK_MS = 20
#: The size of a value from which `-o json` writes null (systemd's src/shared/logs-show.c).
JSON_THRESHOLD = 4096


def main() -> int:
    journal = Path(sys.argv[1]) / "journal.jsonl"
    words = sys.argv[2:]
    if "--sync" in words:
        return _sync(Path(sys.argv[1]))
    options = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
    alternatives: list[dict[str, set[str]]] = [{}]
    for word in words:
        if word == "+":
            alternatives.append({})
        elif "=" in word and not word.startswith("-"):
            alternatives[-1].setdefault(word.partition("=")[0], set()).add(word.partition("=")[2])
    if "-u" in words:
        alternatives[-1]["_SYSTEMD_UNIT"] = {words[words.index("-u") + 1]}
    seen = -1
    state: tuple[int, int] | None = None
    closed = select.poll()
    closed.register(1, 0)  # it tells only that the other end of a pipe has been closed, at which journalctl ends too
    while not closed.poll(LOOK_MS if state else 0):
        before, state = state, _state(journal)
        if state == before and "-f" in words:
            continue
        # What stands behind the last newline is being written at this moment.
        text = journal.read_text().rpartition("\n")[0] if journal.exists() else ""
        records = [json.loads(line) for line in text.splitlines()]
        found = [one for one in records if _number(one["__CURSOR"]) > seen and _matches(one, alternatives)]
        seen = _number(records[-1]["__CURSOR"]) if records else seen
        found = [one for one in found if _in_time(one, options)]
        if "--cursor" in options:
            first = _number(options.pop("--cursor"))
            found = [one for one in found if _number(one["__CURSOR"]) >= first]
        if "--lines" in options:
            count = int(options.pop("--lines"))
            found = found[-count:] if count else []
        elif "-f" in words and "--no-tail" not in options:
            found = found[-10:]
            options["--no-tail"] = ""
        for one in found:
            _reach(one, journal.with_name("journald") / "damaged")
            write = _export if "export" in words else _json
            sys.stdout.buffer.write(write(_shown(one, options), "--all" in words))
            sys.stdout.buffer.flush()
        if "-f" not in words:
            break
    return 0


def _state(journal: Path) -> tuple[int, int]:
    """Return the time of the last change of the journal, and its size. Both change when a line has been written."""
    found = journal.stat() if journal.exists() else None
    return (found.st_mtime_ns, found.st_size) if found else (0, 0)


def _shown(record: dict[str, Any], options: dict[str, str]) -> dict[str, Any]:
    """Return the fields that --output-fields names, and those that journalctl prints in any case."""
    if "--output-fields" not in options:
        return record
    always = ("__CURSOR", "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "_BOOT_ID")
    wanted = {*always, *options["--output-fields"].split(",")}
    return {name: value for name, value in record.items() if name in wanted}


def _json(record: dict[str, Any], whole: bool) -> bytes:
    """Write an entry as `-o json` does: without --all, values of more than 4 KiB are null."""
    found = {name: value if whole or len(value) < JSON_THRESHOLD else None for name, value in record.items()}
    return json.dumps(found).encode() + b"\n"


def _export(record: dict[str, Any], _whole: bool) -> bytes:
    """Write an entry as `-o export` does (systemd.io, JOURNAL_EXPORT_FORMATS)."""
    found = b""
    for name, value in record.items():
        for one in _values(value):
            data = bytes(one) if isinstance(one, list) else one.encode()
            is_text = isinstance(one, str) and "\n" not in one
            size = b"" if is_text else len(data).to_bytes(8, "little")
            found += name.encode() + (b"=" if is_text else b"\n" + size) + data + b"\n"
    return found + b"\n"


def _values(value: Any) -> list[Any]:
    """Return the values of a field, which a program may have sent several times."""
    return value if isinstance(value, list) and value and not isinstance(value[0], int) else [value]


def _reach(record: dict[str, Any], damaged: Path) -> None:
    if damaged.exists() and damaged.read_text() in str(record["MESSAGE"]):
        while damaged.exists():
            time.sleep(0.02)


def _number(cursor: str) -> int:
    return int(cursor.partition("i=")[2], 16)


def _matches(record: dict[str, Any], alternatives: list[dict[str, set[str]]]) -> bool:
    return any(all(record.get(name) in values for name, values in wanted.items()) for wanted in alternatives)


def _sync(tree: Path) -> int:
    while (tree / "journald/stopped").exists():
        time.sleep(0.02)
    if (tree / "journald/broken").exists():
        print("Failed to execute operation: No data available", file=sys.stderr)
        return 1
    queue = tree / "journald/queue.jsonl"
    if queue.exists():
        with (tree / "journal.jsonl").open("a") as file:
            file.write(queue.read_text())
        queue.unlink()
    return 0


def _in_time(record: dict[str, Any], options: dict[str, str]) -> bool:
    at = int(record["__REALTIME_TIMESTAMP"]) / 1e6
    since, until = options.get("--since", "@0"), options.get("--until", "@9e9")
    return (since[0] != "@" or at >= float(since[1:])) and at <= float(until[1:])


sys.exit(main())
