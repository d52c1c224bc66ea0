"""What is wrong with a job, who is the cause, and what to do: from what its hosts see of its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypedDict

from tfctl.errors import TfctlError, Unreachable
from tfctl.jobs.culprits import Culprit, CulpritObject
from tfctl.jobs.state import JobState, TaskState
from tfctl.jobs.trace import BUSY, FOR_OTHERS, Activity, Trace, TracedTask, ranges, trace
from tfctl.node import causes, names, wire
from tfctl.node.names import task as task_name
from tfctl.wording import plain, with_remedy

if TYPE_CHECKING:
    from tfctl.remote.fleet import Fleet

#: For how long (s) tasks are measured.
MEASURE_S = 2.0
#: A task is silent if it has printed nothing for so many times its usual interval, and at least for so long (s).
SILENT_TIMES, SILENT_S = 10, 5.0
#: A silent task that uses less of a core waits. One that waits in TensorFlow for others uses up to this much, for
#: heartbeats and polling; one that computes uses a core or more.
WAITING = 0.05
#: Whose clients it takes so many attempts to send the last bytes, is not reached.
RETRIES = 2
#: A disk with less free space (MiB) is full.
FULL_MIB = 32
#: How many of its last lines say why a task that has not ended prints nothing more.
_LAST_WORDS = 25


class WhyObject(TypedDict):
    """``job``: its name. ``state``: its state. ``verdict``: found, healthy, or unknown.

    ``culprits``: the most likely cause first. ``evidence``: what they follow from, in sentences.
    """

    job: str
    state: wire.JobStateName
    verdict: Literal["found", "healthy", "unknown"]
    culprits: list[CulpritObject]
    evidence: list[str]


@dataclass(frozen=True)
class Diagnosis:
    """``culprits``: most likely first. Without one, ``verdict`` says whether that is good. ``evidence``: sentences."""

    job: str
    state: wire.JobStateName
    verdict: Literal["found", "healthy", "unknown"]
    culprits: tuple[Culprit, ...] = ()
    evidence: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield what `tfctl why` prints: the culprit, the remedy, and what they follow from."""
        if self.verdict == "healthy":
            yield f"nothing is wrong with {self.job}: it is {self.state}"
        elif self.verdict == "unknown":
            sentence = (
                f"unknown: {self.job} is {self.state}, and nothing that its hosts see tells why it does not go on"
            )
            look = f"look at its tasks: tfctl trace {self.job}; at what they print: tfctl logs {self.job}"
            yield from with_remedy(sentence, look).split("\n")
        for culprit in self.culprits:
            yield from with_remedy(culprit.sentence, culprit.remedy).split("\n")
        for sentence in self.evidence:
            yield f"  {sentence}"


@dataclass
class _Case:
    """What is known. ``silent``: hosts that do not answer, with their errors."""

    state: JobState
    tasks: Sequence[TracedTask]
    hosts: Mapping[str, wire.Traced]
    silent: Mapping[str, TfctlError]
    evidence: list[str] = field(default_factory=list)

    def age(self, traced: TracedTask, time: float) -> float:
        """Return how long ago (s) something was, by the clock of the task's host."""
        return (self.hosts[traced.task.host].time or 0.0) - time


def why(fleet: Fleet, state: JobState, errors: Sequence[TfctlError]) -> Diagnosis:
    """Ask the hosts of a job, once, and say what is wrong. ``errors``: of hosts that have not said how the job is.

    Raise the errors of the hosts as one if none answers.
    """
    found = trace(fleet, state, state.tasks, MEASURE_S if not state.ended else 0.0, full=True)
    return diagnose(state, found, errors)


def as_object(found: Diagnosis) -> WhyObject:
    """Return what `tfctl why -o json` prints."""
    return {
        "job": found.job,
        "state": found.state,
        "verdict": found.verdict,
        "culprits": [each.as_object() for each in found.culprits],
        "evidence": [plain(sentence) for sentence in found.evidence],
    }


def diagnose(state: JobState, found: Trace, errors: Sequence[TfctlError] = ()) -> Diagnosis:
    """Say what is wrong with a job. A pure function."""
    silent = {host: error for error in [*errors, *found.errors] for host in error.hosts}
    case = _Case(state, found.tasks, found.hosts, silent)
    if state.state in ("succeeded", "stopped"):
        return Diagnosis(state.job, state.state, "healthy", evidence=tuple(filter(None, [state.reason])))
    if state.ended and state.stall is not None:
        return _of_stall(_at_stall(case), state.stall)
    for look in (_of_hosts, _of_processes, _of_network, _of_ends, _of_disks, _of_last_words, _of_silence):
        if culprits := look(case):
            return Diagnosis(
                state.job, state.state, "found", tuple(culprits), (*case.evidence, *_others(case, culprits))
            )
    if state.state == "failed":
        return Diagnosis(state.job, state.state, "unknown", evidence=(state.reason,))
    if _all_silent(case):
        return Diagnosis(state.job, state.state, "unknown", evidence=tuple(_doing(case)))
    return Diagnosis(state.job, state.state, "healthy", evidence=tuple(_doing(case)))


def _at_stall(case: _Case) -> _Case:
    """Return the case as the guards have noted it when the job stalled."""
    noted = {host: answer.stall for host, answer in case.hosts.items() if answer.stall is not None}
    seen = {(host, one.name): one for host, stall in noted.items() for one in stall.tasks}
    tasks = [
        TracedTask(
            replace(each.task, status=each.task.status._replace(state="running")),
            seen.get((each.task.host, each.task.name)),
        )
        for each in case.tasks
    ]
    hosts = {host: case.hosts[host]._replace(tasks=stall.tasks, time=stall.time) for host, stall in noted.items()}
    return _Case(case.state, tasks, hosts, {})


def _of_stall(case: _Case, stall: wire.Stall) -> Diagnosis:
    """Say why a job had stalled that its guard has ended for that reason."""
    job = case.state
    for look in (_of_processes, _of_network, _of_last_words, _of_silence):
        if culprits := look(case):
            evidence = (stall.reason, *case.evidence, *_others(case, culprits))
            return Diagnosis(job.job, job.state, "found", tuple(culprits), evidence)
    return Diagnosis(job.job, job.state, "unknown", evidence=(stall.reason, *_doing(case)))


def _of_hosts(case: _Case) -> list[Culprit]:
    """Find hosts that do not answer."""
    return [
        Culprit(
            "",
            host,
            "host unreachable",
            f"{host} does not answer: {error.message}",
            error.remedy or f"tfctl ssh {host}",
        )
        for host, error in case.silent.items()
        if isinstance(error, Unreachable)
    ]


def _of_ends(case: _Case) -> list[Culprit]:
    """Find the task that has failed, or was restarted, before all others did."""
    told = [(each.task.record, _explained(case, each)) for each in case.tasks if causes.has_failed(each.task.status)]
    found = causes.of_job(case.state.job, told)
    if found is None:
        return []
    for record, status in told:
        name = task_name(*record.name)
        if record == found.task and found.line:
            case.evidence.append(f"{name}: {found.line}")
        case.evidence.append(f"{name} on {record.host}: {causes.how_ended(record, status)}")
    return [Culprit.of(found)]


def _explained(case: _Case, each: TracedTask) -> wire.TaskStatus:
    """Return the status of a task that has failed with the cause that its guard has noted, or its last lines name."""
    status = each.task.status
    cause = None if status.cause or each.seen is None else causes.noted(each.seen.lines)
    if cause is None:
        return status
    now = max(answer.time or 0.0 for answer in case.hosts.values())
    return status._replace(cause=cause._replace(time=now - case.age(each, cause.time)))


def _of_processes(case: _Case) -> list[Culprit]:
    """Find tasks that cannot run, whatever the others do."""
    found = []
    for each in case.tasks:
        seen, task = each.seen, each.task
        if seen is None or not task.alive:
            continue
        where = f"{task} on {task.host}"
        if seen.state == "stopped":
            again = f"tfctl restart {case.state.job} {task.role} {task.index}"
            remedy = f"continue it: on {task.host}, kill -CONT {seen.pid}; or start it again: {again}"
            found.append(
                Culprit(str(task), task.host, "stopped", f"{where} is stopped by a signal or a debugger", remedy)
            )
        elif seen.state == "frozen":
            unit = names.unit(case.state.job, task.role, task.index)
            remedy = f"continue it: on {task.host}, systemctl thaw {unit}"
            found.append(Culprit(str(task), task.host, "frozen", f"{where} is frozen", remedy))
        elif seen.state == "blocked" and _idle(each) and _is_silent(case, each):
            remedy = f"look at the disks and network file systems of {task.host}: dmesg, mount"
            sentence = f"{where} is blocked in the kernel ({seen.waits or 'unknown'}), as by a disk or a file server"
            found.append(Culprit(str(task), task.host, "blocked in the kernel", sentence, remedy))
    return found


def _of_disks(case: _Case) -> list[Culprit]:
    found = []
    for host, answer in case.hosts.items():
        for disk in answer.disks:
            if disk.free_mib < FULL_MIB and any(each.task.alive for each in case.tasks if each.task.host == host):
                sentence = f"{host} has {disk.free_mib} MiB free for {disk.path}"
                remedy = (
                    "make room: tfctl prune --older-than 14d deletes old jobs; delete what tasks have written there"
                )
                found.append(Culprit("", host, "disk full", sentence, remedy))
    return found


def _of_last_words(case: _Case) -> list[Culprit]:
    """Find tasks that have printed an error and then nothing more, although they have not ended: threads of TensorFlow
    can keep a program from ending."""
    found = []
    for each in case.tasks:
        if each.seen is None or each.task.state != "running" or not _is_silent(case, each):
            continue
        cause = causes.noted(each.seen.lines[-_LAST_WORDS:])
        if cause is None or cause.consequence:
            continue
        task = each.task
        case.evidence.append(f"{task}: {cause.line}")
        case.evidence.append(f"{task}: it has not ended, and has printed nothing for {_silence(case, each):.0f} s")
        sentence = f"{task} on {task.host} {cause.sentence}"
        found.append((-case.age(each, cause.time), Culprit(str(task), task.host, cause.kind, sentence, cause.remedy)))
    return [culprit for _, culprit in sorted(found, key=lambda one: one[0])][:1]


def _of_network(case: _Case) -> list[Culprit]:
    """Find the host to which tasks of others send the same bytes again and again."""
    lost: dict[str, list[tuple[TracedTask, str]]] = {}
    for each in case.tasks:
        for one in each.seen.sockets if each.seen else ():
            peer = _peer(case, one.peer)
            is_lost = one.state == "SYN-SENT" or (one.unsent and one.retries >= RETRIES)
            if is_lost and peer is not None and peer.task.host != each.task.host:
                lost.setdefault(peer.task.host, []).append((each, one.peer))
    if not lost:
        return []
    # Both ends of a connection miss confirmations: the host that has lost most others is the cause.
    pairs = {frozenset((each.task.host, host)) for host, waiting in lost.items() for each, _ in waiting}
    host = max(lost, key=lambda one: (sum(one in pair for pair in pairs), len(lost[one])))
    waiting = lost[host]
    on_it = [each for each in case.tasks if each.task.host == host]
    senders = sorted({other for pair in pairs if host in pair for other in pair if other != host})
    for each, address in dict.fromkeys(waiting):
        case.evidence.append(f"{each.task} on {each.task.host} sends to {address}, and gets no answer")
    names_there = ranges([each.task for each in on_it])
    sentence = f"{names_there} on {host}: packets between {host} and {', '.join(senders)} are lost"
    remedy = (
        f"look at the firewall and the network of {host} (nft list ruleset, ip route, MTU); tfctl verify measures it"
    )
    return [Culprit(str(on_it[0].task) if on_it else "", host, "network", sentence, remedy)]


def _peer(case: _Case, address: str) -> TracedTask | None:
    """Return the task at the other end of a connection: the one that listens there, or another one of that host."""
    host, port = _split(address)
    there = [each for each in case.tasks if each.task.record.address == host]
    return next((each for each in there if each.task.record.port == port), there[0] if there else None)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port) if port.isdecimal() else 0


def _of_silence(case: _Case) -> list[Culprit]:
    """Find the task for which the others wait: it is silent and idle, or computes in the user's own code, while others
    print; or, if all are silent, it alone does not wait for others."""
    running = [each for each in case.tasks if each.seen is not None and each.task.state == "running"]
    working = [each for each in running if each.activity.kind != "serve"]
    silent = [each for each in working if _is_silent(case, each)]
    own = [each for each in silent if each.activity.kind not in FOR_OTHERS]
    if len(silent) < len(working):
        # Those that have printed no two lines have no usual interval: they may never print.
        own = [each for each in own if each.seen and each.seen.usual is not None]
        own = [each for each in own if _idle(each) or _is_in_own_code(each)]
        return [_stuck(case, own[0])] if len(own) == 1 else []
    idle = [each for each in own if _idle(each)]
    alone = own if len(own) == 1 else idle
    return [_stuck(case, alone[0])] if len(alone) == 1 else []


def _idle(each: TracedTask) -> bool:
    return each.seen is not None and (each.seen.cpu or 0.0) < WAITING


def _is_in_own_code(each: TracedTask) -> bool:
    """Return whether the main thread computes in a function of the user's own code."""
    seen, does = each.seen, each.activity
    if seen is None or not seen.threads or not seen.threads[0].frames or (seen.cpu or 0.0) < BUSY:
        return False
    frame = seen.threads[0].frames[0]
    return does.kind == "other" and does.where == f"{frame.file}:{frame.line}, in {frame.name}"


def _stuck(case: _Case, each: TracedTask) -> Culprit:
    seen, task, does = each.seen, each.task, each.activity
    assert seen is not None
    case.evidence.append(f"{task}: {does}, and has printed nothing for {_silence(case, each):.0f} s")
    where = f" in {does.where}" if does.where else ""
    name = f"{task} on {task.host}"
    if (seen.cpu or 0.0) >= WAITING and does.kind != "input":
        sentence = (
            f"{name} computes{where} ({seen.cpu:.1f} cores) and does not reach the operation in which the others wait"
        )
        return Culprit(
            str(task),
            task.host,
            "spinning",
            sentence,
            f"see its stack: tfctl trace {case.state.job} {task.role} {task.index}",
        )
    if does.kind == "input" or seen.waits in ("wait_for_partner", "pipe_read", "anon_pipe_read"):
        remedy = f"look at what it reads there: tfctl trace {case.state.job} {task.role} {task.index} shows the calls"
        return Culprit(str(task), task.host, "input blocks", f"{name} waits for its input{where}", remedy)
    sentence = f"{name} {does.words}{where}{', while the others wait for it' if len(case.state.tasks) > 1 else ''}"
    return Culprit(
        str(task), task.host, "stuck", sentence, f"see its stack: tfctl trace {case.state.job} {task.role} {task.index}"
    )


def _silence(case: _Case, each: TracedTask) -> float:
    """Return for how long (s) a task has printed nothing."""
    seen = each.seen
    now = case.hosts[each.task.host].time or 0.0
    if seen is not None and seen.lines:
        return now - seen.lines[-1].time
    return now - (each.task.status.started or now)


def _is_silent(case: _Case, each: TracedTask) -> bool:
    seen = each.seen
    if seen is None:
        return False
    return _silence(case, each) >= max(SILENT_S, SILENT_TIMES * (seen.usual or 0.0))


def _all_silent(case: _Case) -> bool:
    running = [each for each in case.tasks if each.task.state == "running"]
    return bool(running) and all(_is_silent(case, each) and _idle(each) for each in running)


def _doing(case: _Case) -> Iterator[str]:
    """Yield what the tasks do, those that do the same together."""
    groups: dict[Activity, list[TaskState]] = {}
    for each in case.tasks:
        if each.task.alive:
            groups.setdefault(each.activity, []).append(each.task)
    for activity, tasks in groups.items():
        yield f"{ranges(tasks)}: {activity}"


def _others(case: _Case, culprits: Sequence[Culprit]) -> Iterator[str]:
    """Yield what the others do, and what the kernels of the culprits' hosts say."""
    guilty = {culprit.task for culprit in culprits}
    for culprit in dict.fromkeys(culprit.host for culprit in culprits):
        for line in case.hosts[culprit].kernel[-3:] if culprit in case.hosts else ():
            yield f"kernel of {culprit}: {line.text}"
    if not case.state.ended:
        rest = _Case(case.state, [each for each in case.tasks if str(each.task) not in guilty], case.hosts, case.silent)
        yield from _doing(rest)
