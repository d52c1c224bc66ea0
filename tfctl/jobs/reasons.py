"""Say why tasks were stopped after their job had ended."""

from __future__ import annotations

from collections.abc import Sequence

from tfctl.jobs.state import JobState, TaskState
from tfctl.wording import Lines, abbreviated


def stopped(ended: JobState, tasks: Sequence[TaskState]) -> str:
    """Return a line for each reason for which some of these tasks, which were alive, were stopped."""
    if ended.state != "succeeded":
        return _line(tasks, _cause(ended))
    idle = [task for task in tasks if _serves(ended, task.role)]
    others = [task for task in tasks if task not in idle]
    lines = [_line(idle, "which had nothing left to do"), _line(others, "because the job succeeded")]
    return Lines(*filter(None, lines))


def _line(tasks: Sequence[TaskState], why: str) -> str:
    return f"stopped {abbreviated([str(task) for task in tasks])}, {why}" if tasks else ""


def _cause(ended: JobState) -> str:
    if (culprit := ended.culprit) is not None:
        return f"because {culprit} is lost" if culprit.state == "lost" else f"because {culprit} failed"
    return "because the job failed" if ended.state == "failed" else "because the job was stopped"


def _serves(job: JobState, role: str) -> bool:
    """Return whether the role's tasks only serve the others, or follow them and may take their time to end."""
    from tfctl.model.strategies import STRATEGIES  # ten files, needed only here

    strategy = STRATEGIES.get(job.record.strategy)
    rule = strategy.rule(role) if strategy else None
    return role in ("ps", "evaluator", *job.record.leaves) or bool(rule and rule.serves)
