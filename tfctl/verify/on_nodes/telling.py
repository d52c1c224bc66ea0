"""What the proofs share: this host's index, the other hosts, and the line that reports the result. Python 3.6."""

import json
import os
import sys
import traceback

MARK = "tfctl-verify "
SO_FAR = "tfctl-so-far "


def index():
    """Return this host's index in `names`."""
    return int(os.environ["TFCTL_INDEX"])


def names():
    """Return the hosts' inventory names, by index."""
    return json.loads(os.environ["VERIFY_HOSTS"])


def addresses():
    """Return every host's host:port, by index."""
    return json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]


def tell(prove):
    """Call ``prove`` and report its dict of details, its Failed's message, or any other exception. Then exit."""
    try:
        result = dict(prove(), ok=True)
    except Failed as fault:
        result = dict(fault.details, ok=False, message=str(fault))
    except Exception as fault:
        where = traceback.format_exc().strip().splitlines()[-3:-1]
        lines = [f"{type(fault).__name__}: {str(fault)[:2000]}", *(line.strip() for line in where)]
        result = {"ok": False, "message": "\n".join(lines)}
    sys.stdout.write("\n" + MARK + json.dumps(result, sort_keys=True) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a broken collective may hang in its own cleanup


def note(**details):
    """Report these details at once. They count however the proof ends."""
    sys.stdout.write("\n" + SO_FAR + json.dumps(details, sort_keys=True) + "\n")
    sys.stdout.flush()


class Failed(Exception):
    """A failed proof, with a message for the user. ``details`` are reported beside it."""

    def __init__(self, message, **details):
        super().__init__(message)
        self.details = details
