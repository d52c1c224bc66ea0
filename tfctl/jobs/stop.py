"""Stop a job or some of its tasks: SIGTERM, grace period, SIGKILL, and a check that nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tfctl.errors import NotFound, PreflightFailed, TfctlError, Unreachable, together
from tfctl.jobs.answers import closed_when_silent
from tfctl.jobs.state import unknown
from tfctl.node import names, wire
from tfctl.remote.fleet import Fleet, HostOutcome
from tfctl.remote.session import Session, beating, open_session
from tfctl.wording import abbreviated

if TYPE_CHECKING:
    from tfctl.remote.transport import Connection


def stop(
    fleet: Fleet,
    job: str,
    tasks: Mapping[str, Iterable[wire.TaskName]] | None = None,
    attempt: int | None = None,
    run: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    *,
    now: bool = False,
) -> list[str]:
    """Stop the whole job, or ``tasks`` (by host), in ``attempt`` or the latest; return the names (``worker/3``).

    With ``run``, stop nothing on a host where that attempt is another run. With ``now``, send SIGKILL after 2 s,
    whatever grace period the tasks have. Ask every host, or only those in ``tasks``.
    All hosts that answer mark the tasks before any host ends one, so that a task that fails because another one ended
    counts as stopped.

    Raise NotFound if no host that answers knows the job. Raise the errors of the job's hosts once all have been asked,
    and TfctlError for anything that is left. The errors of other hosts are reported through ``say``.
    """
    sessions: dict[str, Session] = {}

    def mark(connection: Connection) -> wire.Marked:
        host = connection.host.name
        chosen = None if tasks is None else tuple(tasks[host])
        with closed_when_silent(connection):
            request = wire.StopRequest(job, attempt, chosen, run, hold=True, now=now or None)
            sessions[host] = open_session(connection, request)
            return sessions[host].expect(wire.Marked, wire.SILENCE_S)

    def end(connection: Connection) -> wire.Stopped:
        session = sessions[connection.host.name]
        session.send(wire.Go(everywhere))
        return session.expect(wire.Stopped, wire.SILENCE_S)

    hosts = None if tasks is None else [host for host in fleet.hosts if host.name in tasks]
    try:
        with beating(sessions):  # a host that hears nothing while others mark their tasks would go on without them
            marked = fleet.map(mark, hosts)
            everywhere = tasks is None and _all_have_answered(marked)
            ended = fleet.map(end, [outcome.host for outcome in marked if outcome.error is None])
    finally:
        for session in list(sessions.values()):
            session.close()
    return _result(job, marked, ended, whole=tasks is None, say=say)


def _members(marked: Sequence[HostOutcome[wire.Marked]]) -> set[str] | None:
    """Return the names of the job's hosts, or None if none of those that send them has answered."""
    answers = [outcome.get() for outcome in marked if outcome.error is None]
    found = {host for answer in answers for host in answer.hosts}
    return None if not found and any(answer.attempt for answer in answers) else found


def _all_have_answered(marked: Sequence[HostOutcome[wire.Marked]]) -> bool:
    """Return whether all hosts of the job have answered."""
    members = _members(marked)
    return members is not None and members <= {outcome.host.name for outcome in marked if outcome.error is None}


def _result(
    job: str,
    marked: Sequence[HostOutcome[wire.Marked]],
    ended: Sequence[HostOutcome[wire.Stopped]],
    *,
    whole: bool,
    say: Callable[[str], None],
) -> list[str]:
    """Return the names of the stopped tasks, or raise as `stop` does."""
    answers = {outcome.host.name: outcome.get() for outcome in ended if outcome.error is None}
    stopped = [names.task(*task) for answer in answers.values() for task in answer.tasks]
    failures = {outcome.host.name: outcome.error for outcome in marked if outcome.error is not None}
    failures.update((outcome.host.name, outcome.error) for outcome in ended if outcome.error is not None)
    known = any(answer.attempt or answer.tasks for answer in answers.values())
    members = _members(marked)
    elsewhere = failures.keys() - members if whole and answers and members is not None else ()
    errors = [
        error
        for host, error in failures.items()
        if not (host in elsewhere and isinstance(error, (Unreachable, PreflightFailed)))
    ]
    others = [error for error in failures.values() if error not in errors]
    errors += [_remains(host, what) for host, answer in answers.items() for what in answer.left]
    for error in others:
        say(error.message)
    if errors:
        if stopped:
            say(f"{job}: stopped {abbreviated(stopped)}")
        raise together(errors)
    if not known:
        raise _unknown(job, list(failures))
    return stopped


def _remains(host: str, what: str) -> TfctlError:
    error = TfctlError(f"{host}: {what}")
    error.hosts = (host,)
    return error


def _unknown(job: str, silent: Sequence[str]) -> TfctlError:
    """Return the error for a job that no host knows. It names the ``silent`` hosts, which may have it."""
    found = unknown(job)
    if silent:
        found = NotFound(f"{found.message}; {', '.join(silent)} did not answer", found.remedy)
        found.hosts = (*silent,)
    return found
