"""Notice hosts whose clocks are wrong. Times of different hosts are compared and sorted in tables, logs and events."""

from __future__ import annotations

from collections.abc import Mapping

#: Smaller differences (s) are not reported.
LIMIT_S = 2.0


def offset(asked: float, theirs: float | None, answered: float) -> float:
    """Return by how many seconds, at least, a host's clock is ahead of this machine's; negative if it is behind.

    The host read its time, ``theirs``, between the request and the answer. None, from an older node part, gives 0.
    """
    if theirs is None:
        return 0.0
    return max(theirs - answered, 0.0) + min(theirs - asked, 0.0)


def remark(offsets: Mapping[str, float]) -> str:
    """Return a sentence about the hosts whose clocks differ by more than LIMIT_S, or an empty string."""
    wrong = [
        f"{host} is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} this machine"
        for host, seconds in offsets.items()
        if abs(seconds) > LIMIT_S
    ]
    return f"clocks differ: {', '.join(wrong)}; times and their order may be wrong (timedatectl)" if wrong else ""
