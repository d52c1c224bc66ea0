"""The results of a verification, and their JSON and JUnit forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict
from xml.etree import ElementTree

from tfctl.errors import Exit, first_of
from tfctl.verify.report import BurnInReport, Software, Speed


class ResultObject(TypedDict):
    """One proof on some hosts. ``proof``: its name. ``hosts``: the names of the hosts.

    ``state``: `ok`, `failed`, or `not-tried` if the stack lacks the feature or there are too few hosts.
    ``message``: what has failed, what somebody should look at, or an empty string.
    ``remedy``: what to do, or an empty string. ``seconds``: the duration, or null. ``details``: what was found or
    measured, such as `tensorflow`, `devices` and `mb_per_s`; it depends on the proof.
    """

    proof: str
    hosts: list[str]
    state: str
    message: str
    remedy: str
    seconds: float | None
    details: dict[str, object]


class ResultsObject(TypedDict):
    """``exit``: the exit code of the command. ``results``: in the order of the proofs."""

    exit: int
    results: list[ResultObject]


@dataclass(frozen=True)
class ProofResult:
    """One proof on some hosts. ``seconds`` is its duration; ``details`` is what was found or measured.

    ``state`` is ok, failed, or not-tried if the stack lacks the feature or there are too few hosts (see ``message``).
    A result that is ok has a message if somebody should look at it.
    ``exit`` is the exit code of a failure.
    """

    proof: str
    hosts: tuple[str, ...]
    state: str
    message: str = ""
    remedy: str = ""
    seconds: float | None = None
    details: Software | Speed | BurnInReport | None = None
    exit: Exit = Exit.FAILED

    def facts(self) -> dict[str, object]:
        """Return the details by name, without those that are unknown."""
        return self.details.model_dump(mode="json", exclude_none=True) if self.details else {}

    def to_json(self) -> ResultObject:
        return {
            "proof": self.proof,
            "hosts": list(self.hosts),
            "state": self.state,
            "message": self.message,
            "remedy": self.remedy,
            "seconds": self.seconds,
            "details": self.facts(),
        }


@dataclass(frozen=True)
class ProofResults:
    """All results, in the order of the proofs."""

    all: tuple[ProofResult, ...]

    @property
    def exit(self) -> Exit:
        """The exit code of the gravest failure. A proof that was not tried is not a failure."""
        return first_of(result.exit for result in self.all if result.state == "failed")

    def to_json(self) -> ResultsObject:
        return {"exit": int(self.exit), "results": [result.to_json() for result in self.all]}

    def to_junit(self) -> str:
        """Return the results as JUnit XML, which CI systems read. A proof is a class; its hosts name the test case."""
        count = {state: sum(result.state == state for result in self.all) for state in ("failed", "not-tried")}
        suite = ElementTree.Element(
            "testsuite",
            name="tfctl verify",
            tests=str(len(self.all)),
            failures=str(count["failed"]),
            skipped=str(count["not-tried"]),
        )
        for result in self.all:
            case = ElementTree.SubElement(suite, "testcase", classname=result.proof, name=_xml(" ".join(result.hosts)))
            if result.seconds is not None:
                case.set("time", f"{result.seconds:.3f}")
            if result.state == "failed":
                ElementTree.SubElement(case, "failure", message=_xml(result.message)).text = _xml(result.remedy)
            elif result.state == "ok" and result.message:
                ElementTree.SubElement(case, "system-out").text = _xml(result.message)
            elif result.state == "not-tried":
                ElementTree.SubElement(case, "skipped", message=_xml(result.message))
        return ElementTree.tostring(suite, encoding="unicode")


def _xml(text: str) -> str:
    """Remove characters that XML 1.0 cannot represent (its production Char), such as a program's colour codes."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text)
