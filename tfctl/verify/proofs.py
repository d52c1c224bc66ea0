"""The proofs: what each runs on the hosts, for how long, and how its answers are judged. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfctl.errors import Exit
from tfctl.verify.report import HostReport, Pair, Software, Speed
from tfctl.verify.results import Result


@dataclass(frozen=True)
class Answer:
    """One host's answer. ``seconds`` counts from the request for the proof. ``exit`` is the exit code of a failure."""

    host: str
    report: HostReport
    seconds: float
    exit: Exit = Exit.FAILED

    @property
    def ok(self) -> bool:
        return self.report.ok


#: The software of each host that has passed its own proof, by host name.
SoftwareByHost = Mapping[str, Software]


@dataclass(frozen=True)
class Proof:
    """One proof. ``program`` is a file in on_nodes/, ``seconds`` its time limit.

    ``obstacle`` returns why it cannot be tried, or "". ``fail_fast`` means that all hosts stop as soon as one fails.
    """

    name: str
    title: str
    program: str
    seconds: int
    judge: Callable[[Sequence[Answer]], list[Result]]
    fail_fast: bool = True
    strategy: str = "custom"
    launcher: str | None = None
    least_hosts: int = 1
    obstacle: Callable[[SoftwareByHost], str] = lambda software: ""  # noqa: ARG005


def per_host(proof: str, remedy: str) -> Callable[[Sequence[Answer]], list[Result]]:
    """Return a judge that gives one result per host."""

    def judge(answers: Sequence[Answer]) -> list[Result]:
        return [
            Result(proof, (a.host,), "ok", seconds=a.seconds, details=a.report.software)
            if a.ok
            else Result(proof, (a.host,), "failed", a.report.message, _remedy(a, remedy), a.seconds, exit=a.exit)
            for a in answers
        ]

    return judge


def for_all_hosts(proof: str, remedy: str) -> Callable[[Sequence[Answer]], list[Result]]:
    """Return a judge that gives one result for all hosts, naming those that failed."""

    def judge(answers: Sequence[Answer]) -> list[Result]:
        hosts = tuple(answer.host for answer in answers)
        seconds = max(answer.seconds for answer in answers)
        bad = [answer for answer in answers if not answer.ok]
        if bad:
            by_message: dict[str, list[str]] = {}
            for answer in [answer for answer in bad if not answer.report.stopped] or bad:
                by_message.setdefault(answer.report.message, []).append(answer.host)
            message = "\n".join(f"{', '.join(names)}: {text}" for text, names in by_message.items())
            return [Result(proof, hosts, "failed", message, _remedy(bad[0], remedy), seconds, exit=bad[0].exit)]
        return [Result(proof, hosts, "ok", seconds=seconds, details=answers[0].report.all)]

    return judge


def with_pairs(proof: str, remedy: str) -> Callable[[Sequence[Answer]], list[Result]]:
    """Return a judge that gives one result for all hosts and one per pair, with the slower of the two measurements."""
    all_hosts = for_all_hosts(proof, remedy)

    def judge(answers: Sequence[Answer]) -> list[Result]:
        pairs: dict[tuple[str, ...], Pair] = {}
        for answer in answers:
            for pair in answer.report.pairs:
                names = _named(answer, answers[pair.partner])
                if names not in pairs or pair.mb_per_s < pairs[names].mb_per_s:
                    pairs[names] = pair
        results = [
            Result(
                f"{proof}-pair",
                names,
                "ok",
                seconds=pair.seconds,
                details=Speed(mb_per_s=pair.mb_per_s, seconds=pair.seconds),
            )
            for names, pair in pairs.items()
        ]
        results += [
            Result(f"{proof}-pair", names, "failed", why, remedy)
            for names, why in _bad_pairs(answers).items()
            if names not in pairs
        ]
        return all_hosts(answers) + sorted(results, key=lambda result: result.hosts)

    return judge


def same_software(answers: Sequence[Answer]) -> list[Result]:
    """Return failures for hosts whose versions differ: TensorFlow and Horovod promise no compatibility between them."""
    software = {answer.host: answer.report.software for answer in answers if answer.report.software and answer.ok}
    results = []
    packages: dict[str, Callable[[Software], str | None]] = {
        "tensorflow": lambda found: found.tensorflow,
        "horovod": lambda found: found.horovod,
    }
    for name, version_of in packages.items():
        versions = {host: version for host, found in software.items() if (version := version_of(found)) is not None}
        usual = max(versions.values(), key=list(versions.values()).count, default=None)
        odd = {host: version for host, version in versions.items() if version != usual}
        if odd:
            shown = ", ".join(f"{host} has {version}" for host, version in odd.items())
            message = f"{name}: {shown}; the others have {usual}"
            results.append(Result("same-software", tuple(odd), "failed", message, "tfctl provision INVENTORY"))
    return results


def _bad_pairs(answers: Sequence[Answer]) -> dict[tuple[str, ...], str]:
    """Return the failed pairs, each with the message of the first host that reports it.

    A pair has failed if both hosts broke off with each other (one host alone may have met a partner that had already
    finished), or if no plain TCP passed between them.
    """
    found: dict[tuple[str, ...], str] = {}
    broken: dict[tuple[str, ...], list[str]] = {}
    for answer in answers:
        for lost in answer.report.lost:
            names = _named(answer, answers[lost.partner])
            found.setdefault(names, f"{answer.host}: nothing passes between them over TCP: {lost.message}")
        if trouble := answer.report.broken:
            names = _named(answer, answers[trouble.partner])
            broken.setdefault(names, []).append(f"{answer.host}: {trouble.message}")
    return {**{names: said[0] for names, said in broken.items() if len(said) == 2}, **found}


def _named(one: Answer, other: Answer) -> tuple[str, ...]:
    return tuple(sorted((one.host, other.host)))


def _remedy(answer: Answer, usual: str) -> str:
    return answer.report.remedy or usual


def _collective(software: SoftwareByHost) -> str:
    version = next(iter(software.values())).tensorflow
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 4):
        return f"TensorFlow {version} has no stable MultiWorkerMirroredStrategy"
    return ""


def _horovod(part: str) -> Callable[[SoftwareByHost], str]:
    def obstacle(software: SoftwareByHost) -> str:
        without = [host for host, found in software.items() if part not in (found.horovod_has or ())]
        what, wish = {"gloo": ("Gloo", "tfctl_horovod"), "mpi": ("MPI", "tfctl_horovod, tfctl_openmpi")}[part]
        return f"{', '.join(without)}: no Horovod with {what} there ({wish})" if without else ""

    return obstacle


_PROVISION = "tfctl provision INVENTORY, and look at the log: tfctl logs --job verify"
_NETWORK = "let the hosts reach each other's ports of the job range (tfctl_ports): firewall, routes, tfctl_address"

SOFTWARE = Proof("tensorflow", "TensorFlow and its devices", "software", 180, per_host("tensorflow", _PROVISION), False)
SHARED = Proof(
    "shared-directory",
    "the shared directory",
    "shared",
    60,
    for_all_hosts("shared-directory", "mount one directory on all hosts there"),
    least_hosts=2,
)
COLLECTIVES = (
    Proof(
        "allreduce",
        "TensorFlow's all-reduce, over all hosts and every pair",
        "collective",
        300,
        with_pairs("allreduce", _NETWORK),
        least_hosts=2,
        obstacle=_collective,
    ),
    Proof(
        "horovod-gloo",
        "Horovod's all-reduce over Gloo, over all hosts and every pair",
        "ranks",
        300,
        with_pairs("horovod-gloo", _NETWORK),
        strategy="horovod",
        least_hosts=2,
        obstacle=_horovod("gloo"),
    ),
    Proof(
        "horovod-mpi",
        "Horovod's all-reduce under mpirun, over all hosts and every pair",
        "ranks",
        300,
        with_pairs("horovod-mpi", _NETWORK),
        strategy="horovod",
        launcher="mpi",
        least_hosts=2,
        obstacle=_horovod("mpi"),
    ),
)
