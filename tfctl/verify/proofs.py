"""The proofs: what each runs on the hosts, for how long, and how its answers are judged. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tfctl.errors import Exit
from tfctl.verify.report import BurnInDevice, BurnInReport, HostReport, Pair, Software, Speed
from tfctl.verify.results import ProofResult
from tfctl.wording import Lines, counted

#: A pair is slow if it has less than this part of the median of all pairs, of which there are at least so many.
_SLOW, _COMPARABLE = 0.5, 3
#: A GPU passes the burn-in if its slowest sample has this part of its own median, and its median this part of that of
#: the GPUs with the same name, of which there are at least _COMPARABLE.
STEADY, ALIKE = 0.8, 0.9
#: How long TensorFlow may take to start with many GPUs (s).
_IMPORT_S = 180


@dataclass(frozen=True)
class HostAnswer:
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
    """One proof. ``program`` is a file in on_nodes/, ``seconds`` its time limit, ``load_s`` how long a burn-in lasts.

    ``obstacle`` returns why it cannot be tried, or "". ``fail_fast`` means that all hosts stop as soon as one fails.
    """

    name: str
    title: str
    program: str
    seconds: int
    judge: Callable[[Sequence[HostAnswer]], list[ProofResult]]
    fail_fast: bool = True
    strategy: str = "custom"
    launcher: str | None = None
    least_hosts: int = 1
    obstacle: Callable[[SoftwareByHost], str] = lambda software: ""  # noqa: ARG005
    load_s: float = 0.0


def per_host(proof: str, remedy: str) -> Callable[[Sequence[HostAnswer]], list[ProofResult]]:
    """Return a judge that gives one result per host."""

    def judge(answers: Sequence[HostAnswer]) -> list[ProofResult]:
        return [
            ProofResult(proof, (a.host,), "ok", seconds=a.seconds, details=a.report.software)
            if a.ok
            else ProofResult(proof, (a.host,), "failed", a.report.message, _remedy(a, remedy), a.seconds, exit=a.exit)
            for a in answers
        ]

    return judge


def for_all_hosts(proof: str, remedy: str) -> Callable[[Sequence[HostAnswer]], list[ProofResult]]:
    """Return a judge that gives one result for all hosts, naming those that failed."""

    def judge(answers: Sequence[HostAnswer]) -> list[ProofResult]:
        hosts = tuple(answer.host for answer in answers)
        seconds = max(answer.seconds for answer in answers)
        bad = [answer for answer in answers if not answer.ok]
        if bad:
            by_message: dict[str, list[str]] = {}
            for answer in [answer for answer in bad if not answer.report.stopped] or bad:
                by_message.setdefault(answer.report.message, []).append(answer.host)
            message = Lines(*(f"{', '.join(names)}: {text}" for text, names in by_message.items()))
            return [ProofResult(proof, hosts, "failed", message, _remedy(bad[0], remedy), seconds, exit=bad[0].exit)]
        return [ProofResult(proof, hosts, "ok", seconds=seconds, details=answers[0].report.all)]

    return judge


def with_pairs(proof: str, remedy: str) -> Callable[[Sequence[HostAnswer]], list[ProofResult]]:
    """Return a judge that gives one result for all hosts and one per pair, with the slower of the two measurements.

    A pair that is much slower than most others passes, with a message.
    """
    all_hosts = for_all_hosts(proof, remedy)

    def judge(answers: Sequence[HostAnswer]) -> list[ProofResult]:
        pairs: dict[tuple[str, ...], Pair] = {}
        for answer in answers:
            for pair in answer.report.pairs:
                names = _named(answer, answers[pair.partner])
                if names not in pairs or pair.mb_per_s < pairs[names].mb_per_s:
                    pairs[names] = pair
        usual = _usual([pair.mb_per_s for pair in pairs.values()])
        results = [_pair(f"{proof}-pair", names, pair, usual) for names, pair in pairs.items()]
        results += [
            ProofResult(f"{proof}-pair", names, "failed", why, remedy)
            for names, why in _bad_pairs(answers).items()
            if names not in pairs
        ]
        return all_hosts(answers) + sorted(results, key=lambda result: result.hosts)

    return judge


def _usual(speeds: Collection[float]) -> float:
    """Return the median of the speeds, or 0 if there are too few to compare."""
    return median(speeds) if len(speeds) >= _COMPARABLE else 0.0


def _pair(proof: str, names: tuple[str, ...], pair: Pair, usual: float) -> ProofResult:
    slow = pair.mb_per_s < _SLOW * usual
    speed = Speed(mb_per_s=pair.mb_per_s, seconds=pair.seconds, slow=slow or None)
    message = f"slow: {pair.mb_per_s} MB/s, and the median of all pairs is {usual:.1f} MB/s" if slow else ""
    return ProofResult(proof, names, "ok", message, _LINK if slow else "", pair.seconds, speed)


def burned(answers: Sequence[HostAnswer]) -> list[ProofResult]:
    """Judge the burn-in: one result per host, with every device that is wrong, unsteady or slower than its like."""
    alike: dict[str, list[float]] = {}
    for answer in answers:
        for device in answer.report.burned:
            if device.is_gpu:
                alike.setdefault(device.name, []).append(device.gflops)
    results = []
    for answer in answers:
        faults = [] if answer.ok else [answer.report.message]
        for device in answer.report.burned:
            faults += _faults(device, alike.get(device.name, []))
        details = BurnInReport(devices=answer.report.burned)
        state, remedy = ("failed", _remedy(answer, _CARD)) if faults else ("ok", "")
        text = Lines(*faults)
        results.append(
            ProofResult("burn-in", (answer.host,), state, text, remedy, answer.seconds, details, answer.exit)
        )
    return results


def _faults(device: BurnInDevice, alike: Collection[float]) -> list[str]:
    """Return what is wrong with the device. Only GPUs have limits of speed: other programs use the processors too."""
    found = []
    if device.wrong:
        found.append(f"{device.device} computed {counted(device.wrong, 'product')} wrongly")
    if device.ecc_errors:
        found.append(f"{device.device} had {counted(device.ecc_errors, 'memory error')} that ECC could not correct")
    if not device.is_gpu:
        return found
    if device.lowest_gflops < STEADY * device.gflops:
        hot = f", at up to {device.celsius} °C" if device.celsius is not None else ""
        slowest = f"{device.lowest_gflops:.0f} GFLOP/s in its slowest sample, {device.gflops:.0f} in most"
        found.append(f"{device.device} is not steady: {slowest}{hot}")
    usual = _usual(alike)
    if device.gflops < ALIKE * usual:
        what = f"{device.gflops:.0f} GFLOP/s, and the median of all {device.name} is {usual:.0f}"
        found.append(f"{device.device} is slow: {what}")
    return found


def same_software(answers: Sequence[HostAnswer]) -> list[ProofResult]:
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
            results.append(ProofResult("same-software", tuple(odd), "failed", message, "tfctl provision INVENTORY"))
    return results


def _bad_pairs(answers: Sequence[HostAnswer]) -> dict[tuple[str, ...], str]:
    """Return the failed pairs, each with the message of the first host that reports it.

    A pair has failed if both hosts broke off with each other (one host alone may have met a partner that had already
    finished), or if no plain TCP passed between them.
    """
    found: dict[tuple[str, ...], str] = {}
    broken: dict[tuple[str, ...], list[str]] = {}
    for answer in answers:
        for lost in answer.report.lost:
            names = _named(answer, answers[lost.partner])
            found.setdefault(names, f"{answer.host}: they cannot connect to each other over TCP: {lost.message}")
        if trouble := answer.report.broken:
            names = _named(answer, answers[trouble.partner])
            broken.setdefault(names, []).append(f"{answer.host}: {trouble.message}")
    return {**{names: said[0] for names, said in broken.items() if len(said) == 2}, **found}


def _named(one: HostAnswer, other: HostAnswer) -> tuple[str, ...]:
    return tuple(sorted((one.host, other.host)))


def _remedy(answer: HostAnswer, usual: str) -> str:
    return answer.report.remedy or usual


def _collective(software: SoftwareByHost) -> str:
    version = next(iter(software.values())).tensorflow
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 4):
        return f"TensorFlow {version} has no stable MultiWorkerMirroredStrategy"
    return ""


def _nccl(software: SoftwareByHost) -> str:
    without = [host for host, found in software.items() if not any(name.startswith("GPU") for name in found.devices)]
    return f"no GPU on {', '.join(without)}" if without else _collective(software)


def _horovod(part: str) -> Callable[[SoftwareByHost], str]:
    def obstacle(software: SoftwareByHost) -> str:
        without = [host for host, found in software.items() if part not in (found.horovod_has or ())]
        what, wish = {"gloo": ("Gloo", "tfctl_horovod"), "mpi": ("MPI", "tfctl_horovod, tfctl_openmpi")}[part]
        return f"{', '.join(without)}: no Horovod with {what} there ({wish})" if without else ""

    return obstacle


_PROVISION = "tfctl provision INVENTORY, and look at the log: tfctl logs --job verify"
_CARD = "to see its temperature, power and errors, run on the host: nvidia-smi -q; dmesg | grep -i -e nvrm -e xid"
_LINK = "compare their links: ethtool DEVICE, iperf3; then the switch and its cables"
_NETWORK = "let the hosts reach each other's ports of the job range (tfctl_ports): firewall, routes, tfctl_address"

SOFTWARE = Proof("tensorflow", "TensorFlow and its devices", "software", 180, per_host("tensorflow", _PROVISION), False)


def burn_in(seconds: float) -> Proof:
    """Return the proof that every device computes correctly and steadily for so long."""
    title = f"every device under load for {seconds / 60:g} min"
    return Proof("burn-in", title, "burn", round(seconds) + _IMPORT_S, burned, False, load_s=seconds)


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
        "allreduce-nccl",
        "TensorFlow's all-reduce over NCCL, with every GPU of all hosts",
        "nccl",
        300,
        for_all_hosts("allreduce-nccl", _NETWORK),
        obstacle=_nccl,
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
