"""The proofs: what each runs on the hosts, for how long, and how its answers are judged. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfctl.errors import Exit
from tfctl.verify.report import Result


@dataclass(frozen=True)
class Answer:
    """One host's answer. ``seconds`` counts from the request for the proof. ``exit`` is the exit code of a failure."""

    host: str
    ok: bool
    told: Mapping[str, Any]
    seconds: float
    exit: Exit = Exit.FAILED

    @property
    def message(self) -> str:
        return str(self.told.get("message", ""))


#: The software of each host that is still fit, as known before a proof.
Software = Sequence[Answer]


@dataclass(frozen=True)
class Proof:
    """One proof. ``program`` is a file in on_nodes/, ``seconds`` its time limit.

    ``obstacle`` returns why it cannot be tried, or "". ``together`` means that it fails as soon as one host fails.
    """

    name: str
    title: str
    program: str
    seconds: int
    judge: Callable[[Sequence[Answer]], list[Result]]
    together: bool = True
    strategy: str = "custom"
    launcher: str | None = None
    least_hosts: int = 1
    obstacle: Callable[[Software], str] = lambda software: ""  # noqa: ARG005


def each(proof: str, remedy: str) -> Callable[[Sequence[Answer]], list[Result]]:
    """Return a judge that gives one result per host."""

    def judge(answers: Sequence[Answer]) -> list[Result]:
        return [
            Result(proof, (a.host,), "ok", seconds=a.seconds, details=dict(a.told))
            if a.ok
            else Result(proof, (a.host,), "failed", a.message, _remedy(a, remedy), a.seconds, exit=a.exit)
            for a in answers
        ]

    return judge


def together(proof: str, remedy: str) -> Callable[[Sequence[Answer]], list[Result]]:
    """Return a judge that gives one result for all hosts, naming those that failed."""

    def judge(answers: Sequence[Answer]) -> list[Result]:
        hosts = tuple(answer.host for answer in answers)
        seconds = max(answer.seconds for answer in answers)
        bad = [answer for answer in answers if not answer.ok]
        if bad:
            said: dict[str, list[str]] = {}
            for answer in [answer for answer in bad if not answer.told.get("stopped")] or bad:
                said.setdefault(answer.message, []).append(answer.host)
            message = "\n".join(f"{', '.join(names)}: {text}" for text, names in said.items())
            return [Result(proof, hosts, "failed", message, _remedy(bad[0], remedy), seconds, exit=bad[0].exit)]
        return [Result(proof, hosts, "ok", seconds=seconds, details=dict(answers[0].told.get("all", {})))]

    return judge


def with_pairs(proof: str, remedy: str) -> Callable[[Sequence[Answer]], list[Result]]:
    """Return a judge that gives one result for all hosts and one per pair, with the slower of the two measurements."""
    everybody = together(proof, remedy)

    def judge(answers: Sequence[Answer]) -> list[Result]:
        pairs: dict[tuple[str, ...], dict[str, Any]] = {}
        for answer in answers:
            for pair in answer.told.get("pairs", []):
                names = _named(answer, answers[pair["partner"]])
                before = pairs.get(names)
                if before is None or pair["mb_per_s"] < before["mb_per_s"]:
                    pairs[names] = {key: pair[key] for key in ("seconds", "mb_per_s")}
        results = [
            Result(f"{proof}-pair", names, "ok", seconds=found["seconds"], details=found)
            for names, found in pairs.items()
        ]
        results += [
            Result(f"{proof}-pair", names, "failed", why, remedy)
            for names, why in _bad_pairs(answers).items()
            if names not in pairs
        ]
        return everybody(answers) + sorted(results, key=lambda result: result.hosts)

    return judge


def same_software(answers: Sequence[Answer]) -> list[Result]:
    """Return failures for hosts whose versions differ: TensorFlow and Horovod promise no compatibility between them."""
    good, results = [answer for answer in answers if answer.ok], []
    for name in ("tensorflow", "horovod"):
        told = {answer.host: answer.told[name] for answer in good if name in answer.told}
        usual = max(told.values(), key=list(told.values()).count, default=None)
        odd = {host: version for host, version in told.items() if version != usual}
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
        for one in answer.told.get("lost", []):
            names = _named(answer, answers[one["partner"]])
            found.setdefault(names, f"{answer.host}: nothing passes between them over TCP: {one['message']}")
        if one := answer.told.get("broken"):
            names = _named(answer, answers[one["partner"]])
            broken.setdefault(names, []).append(f"{answer.host}: {one['message']}")
    return {**{names: said[0] for names, said in broken.items() if len(said) == 2}, **found}


def _named(one: Answer, other: Answer) -> tuple[str, ...]:
    return tuple(sorted((one.host, other.host)))


def _remedy(answer: Answer, usual: str) -> str:
    return str(answer.told.get("remedy") or usual)


def _collective(software: Software) -> str:
    version = str(software[0].told["tensorflow"])
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 4):
        return f"TensorFlow {version} has no stable MultiWorkerMirroredStrategy"
    return ""


def _horovod(part: str) -> Callable[[Software], str]:
    def obstacle(software: Software) -> str:
        without = [answer.host for answer in software if part not in answer.told.get("horovod_has", [])]
        what, wish = {"gloo": ("Gloo", "tfctl_horovod"), "mpi": ("MPI", "tfctl_horovod, tfctl_openmpi")}[part]
        return f"{', '.join(without)}: no Horovod with {what} there ({wish})" if without else ""

    return obstacle


_PROVISION = "tfctl provision INVENTORY, and look at the log: tfctl logs --job verify"
_NETWORK = "let the hosts reach each other's ports of the job range (tfctl_ports): firewall, routes, tfctl_address"

SOFTWARE = Proof("tensorflow", "TensorFlow and its devices", "software", 180, each("tensorflow", _PROVISION), False)
SHARED = Proof(
    "shared-directory",
    "the shared directory",
    "shared",
    60,
    together("shared-directory", "mount one directory on all hosts there"),
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
