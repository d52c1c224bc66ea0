"""Test a shared directory: each host writes its own word there and reads those of all others."""

import os
import time
from pathlib import Path

from result import ProofFailed, index, names, report

VISIBLE_TIMEOUT_S = 20  # for attribute caches: NFS looks again after at most 60 s, usually after 3


def main():
    hosts, folder = names(), Path(os.environ["TFCTL_OUTPUT"]) / os.environ["VERIFY_NONCE"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(index())).write_text(os.environ["VERIFY_NONCE"] + " " + str(index()))
    began = time.time()
    missing = set(range(len(hosts)))
    while missing and time.time() - began < VISIBLE_TIMEOUT_S:
        list(folder.iterdir())  # makes NFS ask the server again
        missing = {other for other in missing if not seen(folder / str(other), other)}
        time.sleep(0.05)
    if missing:
        writers = ", ".join(hosts[number] for number in sorted(missing))
        raise ProofFailed(f"{folder.parent} does not show what {writers} wrote")
    return {}


def seen(path, other):
    try:
        return path.read_text() == os.environ["VERIFY_NONCE"] + " " + str(other)
    except OSError:
        return False


if __name__ == "__main__":
    report(main)
