"""Run the proofs one after another, each as a job with one task per host. Skip hosts whose software does not work."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tfctl.errors import BadFile, Busy, Exit, TfctlError, UsageError
from tfctl.jobs import code
from tfctl.jobs.journal import Line, Query
from tfctl.jobs.logs import pattern, read
from tfctl.jobs.nodes import nodes
from tfctl.jobs.start import start
from tfctl.jobs.state import JobState
from tfctl.jobs.stop import stop
from tfctl.jobs.wait import wait
from tfctl.model import stacks
from tfctl.model.gpus import RESTART, missing_gpus
from tfctl.model.host import Host, Inventory, check_variables
from tfctl.model.job import Layout
from tfctl.model.jobfile import JobFile
from tfctl.model.layout import lay_out
from tfctl.model.pattern import select
from tfctl.model.text import output_path
from tfctl.remote.fleet import Fleet
from tfctl.verify.on_nodes.result import MARK
from tfctl.verify.proofs import COLLECTIVES, SHARED, SOFTWARE, HostAnswer, Proof, burn_in, same_software
from tfctl.verify.report import HostReport
from tfctl.verify.results import ProofResult, ProofResults
from tfctl.wording import counted

NAME = "verify"
_CODE = Path(__file__).resolve().parent / "on_nodes"
#: Time (s) beyond a proof's own limit, to start units and finish the log.
_MARGIN_S = 60.0


@dataclass(frozen=True)
class Verification:
    """What to verify. ``stack`` None means each host's own stack, from the inventory. ``shared`` is a directory that
    all hosts should share; None skips its proof. ``burn_in``: how long to keep the devices under load (s)."""

    inventory: Inventory
    stack: str | None = None
    limit: str = "all"
    shared: str | None = None
    burn_in: float | None = None


def run(verification: Verification, say: Callable[[str], None]) -> ProofResults:
    """Prove every stack on its hosts. ``say`` is called as each proof begins.

    Raise Busy (5) while another verification runs, BadFile (3) if a variable of the inventory is misspelt, no host
    matches the limit or jobs may not write to the directory, UsageError (2) if no stack is named or the directory is
    not an absolute path.
    """
    check_variables(verification.inventory)
    if verification.shared:
        try:
            output_path(verification.shared)
        except ValueError as error:
            raise UsageError(f"--shared: {error}") from None
    by_stack: dict[str, list[Host]] = {}
    chosen = select(verification.inventory, verification.limit)
    for host in chosen:
        by_stack.setdefault(verification.stack or host.stack or stacks.NONE, []).append(host)
    without = by_stack.pop(stacks.NONE, [])
    if without and not by_stack:
        names = ", ".join(host.name for host in without)
        raise UsageError(f"{names}: the inventory names no stack to verify", "set tfctl_stack there, or use --stack")
    results = _gpus(chosen)
    results += [ProofResult("tensorflow", (host.name,), "not-tried", "the inventory sets no stack") for host in without]
    for name, hosts in by_stack.items():
        stack = stacks.get(name, verification.inventory.stack_dirs)
        results += _StackProofs(verification, stack.name, say).run(hosts)
    return ProofResults(tuple(results))


def _gpus(hosts: Sequence[Host]) -> list[ProofResult]:
    """Compare the GPUs that nvidia-smi shows with those on the PCI bus and in the inventory, on each host with some.

    A host that does not answer fails in the proof of its software.
    """
    with Fleet(hosts) as fleet:
        states = nodes(fleet, expected="")
    results = []
    for host, node in ((state.host, state.node) for state in states):
        if node is None or not (node.gpu_cards or node.missing_gpus or host.gpus_expected):
            continue
        missing = missing_gpus(host, node.gpu_cards, node.missing_gpus)
        state, remedy = ("failed", RESTART) if missing else ("ok", "")
        results.append(ProofResult("gpus", (host.name,), state, missing, remedy, exit=Exit.PREFLIGHT))
    return results


class _StackProofs:
    """The proofs of one stack."""

    def __init__(self, verification: Verification, stack: str, say: Callable[[str], None]) -> None:
        self._verification, self._stack, self._say = verification, stack, say

    def run(self, hosts: Sequence[Host]) -> list[ProofResult]:
        self._announce(SOFTWARE, len(hosts))
        software = self._ask(SOFTWARE, hosts)
        results = [*SOFTWARE.judge(software), *same_software(software)]
        fit = [host for host, answer in zip(hosts, software, strict=True) if answer.ok]
        known = {answer.host: answer.report.software for answer in software if answer.ok and answer.report.software}
        asked = self._verification
        more = [burn_in(asked.burn_in)] if asked.burn_in else []
        proofs = (*([SHARED] if asked.shared else []), *COLLECTIVES, *more) if fit else ()
        for proof in proofs:
            names = tuple(host.name for host in fit)
            obstacle = (
                f"{counted(len(names), 'host is', 'hosts are')} able to run it, but {proof.least_hosts} are needed"
                if len(names) < proof.least_hosts
                else proof.obstacle(known)
            )
            if obstacle:
                results.append(ProofResult(proof.name, names, "not-tried", obstacle))
                continue
            self._announce(proof, len(fit))
            results += proof.judge(self._ask(proof, fit))
        return results

    def _announce(self, proof: Proof, hosts: int) -> None:
        self._say(f"{self._stack}: {proof.title}, {counted(hosts, 'host')}")

    def _ask(self, proof: Proof, hosts: Sequence[Host]) -> list[HostAnswer]:
        """Return an answer for each host, in order.

        A job starts on all its hosts or on none. If it does not start, and hosts can run the proof alone, split them
        in halves until the faulty ones are found.
        """
        asked = time.time()
        try:
            return self._run(proof, hosts, asked)
        except (Busy, BadFile):
            raise
        except TfctlError as error:
            if len(hosts) > 1 and not proof.fail_fast:
                middle = len(hosts) // 2
                return [*self._ask(proof, hosts[:middle]), *self._ask(proof, hosts[middle:])]
            report = HostReport(ok=False, message=error.message, remedy=error.remedy)
            return [HostAnswer(host.name, report, time.time() - asked, error.exit) for host in hosts]

    def _run(self, proof: Proof, hosts: Sequence[Host], asked: float) -> list[HostAnswer]:
        layout = self._layout(proof, hosts)
        with Fleet(hosts) as fleet:
            job = start(fleet, layout, code.pack(layout.code), self._say)
            try:
                ended = wait(fleet, NAME, job.attempt, lambda _: None, proof.seconds + _MARGIN_S)
                answers = dict(self._answers(fleet, ended, hosts, asked))
            finally:
                with suppress(TfctlError):
                    stop(fleet, NAME)
        silent = HostReport(ok=False, message=f"it reported nothing: see its log: tfctl logs --job {NAME}")
        return [
            answers.get(number, HostAnswer(host.name, silent, time.time() - asked)) for number, host in enumerate(hosts)
        ]

    def _answers(
        self, fleet: Fleet, ended: JobState, hosts: Sequence[Host], asked: float
    ) -> Iterator[tuple[int, HostAnswer]]:
        for line in read(fleet, ended, Query(grep=pattern(f"^{MARK}")), lambda error: self._say(error.message)):
            if not isinstance(line, Line):
                continue
            report = HostReport.model_validate_json(line.text.removeprefix(MARK))
            yield line.index, HostAnswer(hosts[line.index].name, report, line.time - asked)

    def _layout(self, proof: Proof, hosts: Sequence[Host]) -> Layout:
        names = [host.name for host in hosts]
        asked: Mapping[str, object] = {
            "name": NAME,
            "strategy": proof.strategy,
            "launcher": proof.launcher,
            "stack": self._stack,
            "code": str(_CODE),
            "command": ["python", "main.py", proof.program, str(proof.seconds), *["fail-fast"] * proof.fail_fast],
            "env": {
                "VERIFY_HOSTS": json.dumps(names),
                "VERIFY_NONCE": secrets.token_hex(8),
                "VERIFY_LOAD_S": str(proof.load_s),
            },
            "roles": {"worker": {"per_host": 1}},
            "policy": {"on_failure": "fail"},
            **({"output": f"{self._verification.shared}/{NAME}"} if self._verification.shared else {}),
        }
        narrowed = Inventory(self._verification.inventory.source, tuple(hosts))
        return replace(lay_out(JobFile.model_validate(asked), narrowed, NAME), tests_network=True)
