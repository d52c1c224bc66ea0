"""What the proofs share: who am I, who are the others, and the one line that is told at the end. Python 3.6."""

import json
import os
import sys
import traceback

MARK = "tfctl-verify "
SO_FAR = "tfctl-so-far "


def index():
    """Whose proof this is: the place in `names`."""
    return int(os.environ["TFCTL_INDEX"])


def names():
    """The hosts' inventory names in the order of index."""
    return json.loads(os.environ["VERIFY_HOSTS"])


def addresses():
    """host:port of all, in the order of index."""
    return json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]


def tell(prove):
    """Call ``prove`` and tell what it returns: a dict of details; a Failed's sentence; or the exception it met."""
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
    os._exit(0)  # a collective that broke off may hang in its own clean-up


def note(**details):
    """Tell these at once: they count however the proof ends."""
    sys.stdout.write("\n" + SO_FAR + json.dumps(details, sort_keys=True) + "\n")
    sys.stdout.flush()


class Failed(Exception):
    """A proof that did not hold, in words for the user; ``details`` are told beside them."""

    def __init__(self, message, **details):
        super().__init__(message)
        self.details = details
