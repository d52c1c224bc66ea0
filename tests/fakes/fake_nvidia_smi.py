"""A fake nvidia-smi: `fake_nvidia_smi.py RECORDING.json …` prints what was recorded, by what it is asked.

Recordings are those of tests/unit/node/nvidia_smi.yaml. As the real one, it gives the columns that are asked for, in
that order, and refuses a field that it does not know. With `hang` it never answers. It runs on lab nodes too.
"""

import json
import sys
import time
from pathlib import Path


def main(path, words):
    told = json.loads(Path(path).read_text())
    if told.get("hang"):
        time.sleep(600)
    status = int(told.get("status", 0))
    if "says" in told:
        print(told["says"], end="")
        return status
    if words == ["-L"]:
        print(told["list"], end="")
        return status
    if words == ["-q"]:
        print(told.get("details", ""), end="")
        return status
    question, fields = words[0].split("=")
    table = {"--query-gpu": "gpus", "--query-compute-apps": "users"}[question]
    header, *rows = (line.split(", ") for line in told.get(table, "gpu_uuid, pid, process_name").splitlines())
    names = [name.split(" [")[0] for name in header]
    for field in fields.split(","):
        if field not in names:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    print(told.get("before", ""), end="")
    for row in rows:
        known = dict(zip(names, row, strict=True))
        print(", ".join(known[field] for field in fields.split(",")))
    print(told.get("after", ""), end="")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
