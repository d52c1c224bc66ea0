"""A fault, as modules report it in their result's `faults`: what is wrong, and what a user can do about it.

The kind says what the fault means; tfctl/provision/results.py maps it to an exit code. A remedy may contain {host},
which stands for the host's name in the inventory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

INVENTORY = "inventory"  # a variable of the inventory has a value that cannot be used
BUSY = "busy"  # a job runs on the host
UNFIT = "unfit"  # the host lacks what tfctl requires
FAILED = "failed"  # the work itself failed


def fault(message: str, remedy: str = "", kind: str = UNFIT) -> dict[str, str]:
    return {"message": message, "remedy": remedy, "kind": kind}


def fail(module: Any, faults: Sequence[dict[str, str]], **more: object) -> NoReturn:
    """End the module with these faults."""
    module.fail_json(msg="; ".join(each["message"] for each in faults), faults=faults, invocation={}, **more)
    raise AssertionError("fail_json ends the program")
