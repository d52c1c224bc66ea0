"""Functions that all proofs use: this host's index, the other hosts, and the report of the result. Python 3.6."""

import json
import os
import sys
import traceback
from typing import Any, Callable, Dict, List

#: Begins the line with the result of a proof.
MARK = "tfctl-verify "
#: Begins a line with details that are known before the proof ends.
SO_FAR = "tfctl-so-far "


def index() -> int:
    """Return this host's index in `names`."""
    return int(os.environ["TFCTL_INDEX"])


def names() -> List[str]:
    """Return the hosts' inventory names, by index."""
    return json.loads(os.environ["VERIFY_HOSTS"])


def addresses() -> List[str]:
    """Return every host's host:port, by index."""
    return json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]


def report(main: Callable[[], Dict[str, Any]]) -> None:
    """Call ``main`` and report its details, the message of its ProofFailed, or any other exception. Then exit."""
    try:
        result = dict(main(), ok=True)
    except ProofFailed as fault:
        result = dict(fault.details, ok=False, message=str(fault))
    except Exception as fault:
        where = traceback.format_exc().strip().splitlines()[-3:-1]
        lines = [f"{type(fault).__name__}: {str(fault)[:2000]}", *(line.strip() for line in where)]
        result = {"ok": False, "message": "\n".join(lines)}
    sys.stdout.write("\n" + MARK + json.dumps(result, sort_keys=True) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a broken collective may hang in its own cleanup


def note(**details: Any) -> None:
    """Report these details immediately. They are kept however the proof ends."""
    sys.stdout.write("\n" + SO_FAR + json.dumps(details, sort_keys=True) + "\n")
    sys.stdout.flush()


class ProofFailed(Exception):
    """A failed proof, with a message for the user. ``details`` are reported beside it."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details
