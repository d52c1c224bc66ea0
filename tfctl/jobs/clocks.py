"""Notice hosts whose clocks are wrong, and correct their times: those of different hosts are compared and sorted."""

from __future__ import annotations

from collections.abc import Mapping

from tfctl.node import wire
from tfctl.node.clocks import LIMIT_S, corrected_tasks, correction, earlier


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
    return (
        f"clocks differ: {', '.join(wrong)}; tfctl corrects the times that it shows; see timedatectl on the hosts"
        if wrong
        else ""
    )


def ahead(offsets: Mapping[str, float] | None, host: str) -> float:
    """Return what to subtract from the times of a host (s): 0 unless its clock differs by more than LIMIT_S."""
    return correction((offsets or {}).get(host))


def corrected(status: wire.JobStatus, seconds: float) -> wire.JobStatus:
    """Return a host's report about a job with its times converted to this machine's clock.

    ``seconds``: the value of `ahead`.
    """
    if not seconds:
        return status
    guard = status.guard and status.guard._replace(
        retry_at=earlier(status.guard.retry_at, seconds), finished=earlier(status.guard.finished, seconds)
    )
    return status._replace(
        tasks=corrected_tasks(status.tasks, seconds), stopped=earlier(status.stopped, seconds), guard=guard
    )


def corrected_summary(summary: wire.Summary, host: str, offsets: Mapping[str, float]) -> wire.Summary:
    """Return a host's summary with its times converted to this machine's clock.

    ``offsets``: by how many seconds the clocks of hosts are ahead of this machine's.
    """
    seconds = ahead(offsets, host)
    return summary._replace(
        started=summary.started - (ahead(offsets, summary.head) if summary.head else 0.0),
        finished=earlier(summary.finished, seconds),
        stopped=earlier(summary.stopped, seconds),
    )
