"""A fake nvidia-smi: `fake_nvidia_smi.py RECORDING.json …` prints the recorded answer to a query.

tests/unit/node/nvidia_smi.yaml has the recordings. Like the real program, the fake prints the queried columns in the
order of the query, and rejects an unknown field. With `hang` it never answers. It runs on lab nodes too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(path: str, words: list[str]) -> int:
    recording = json.loads(Path(path).read_text())
    if recording.get("hang"):
        time.sleep(600)
    status = int(recording.get("status", 0))
    if "says" in recording:
        print(recording["says"], end="")
        return status
    if words == ["-L"]:
        print(recording["list"], end="")
        return status
    if words == ["-q"]:
        print(recording.get("details", ""), end="")
        return status
    question, fields = words[0].split("=")
    table = {"--query-gpu": "gpus", "--query-compute-apps": "users"}[question]
    header, *rows = (line.split(", ") for line in recording.get(table, "gpu_uuid, pid, process_name").splitlines())
    names = [name.split(" [")[0] for name in header]
    for field in fields.split(","):
        if field not in names:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    print(recording.get("before", ""), end="")
    for row in rows:
        known = dict(zip(names, row, strict=True))
        print(", ".join(known[field] for field in fields.split(",")))
    print(recording.get("after", ""), end="")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
