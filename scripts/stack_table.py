"""Write the tables of docs/stacks.md that say which stack a host can have, by asking the decisions of provisioning.

    .venv/bin/python -m scripts.stack_table

Each host is a fresh one that has no Python but the distribution's, no driver and at most one kind of GPU. The inventory
names a key file where tfctl does not contain the key of NVIDIA's repository.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.unit.provision.fresh_host import FREE, GPU, HOST, KERNEL, PYTHON, facts
from tfctl.model import stacks
from tfctl.provision.decide.decision import Decision
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.wanted import ALL, Preferences, Wanted
from tfctl.provision.uv_pythons import PythonBuild

PAGE = Path(__file__).resolve().parent.parent / "docs/stacks.md"
BEGIN, END = "<!-- Written by scripts/stack_table.py: do not edit. -->\n", "<!-- End of what it writes. -->\n"
#: A GPU of each generation and compute capability, by its PCI id.
CARDS = {
    "Tesla (C1060)": 0x05E7, "Fermi (GTX 580)": 0x1080, "Kepler (GT 710)": 0x128B, "Kepler (K80)": 0x102D,
    "Maxwell (GTX 750)": 0x1381, "Maxwell (M60)": 0x13F2, "Pascal (P100)": 0x15F8, "Pascal (GTX 1080 Ti)": 0x1B06,
    "Volta (V100)": 0x1DB4, "Turing (T4)": 0x1EB8, "Ampere (A100)": 0x20B5, "Ampere (A10)": 0x2236, "Ada (L4)": 0x27B8,
    "Hopper (H100)": 0x2331, "Grace Hopper (GH200)": 0x2342, "Blackwell (B200)": 0x2901,
    "Blackwell (RTX 5090)": 0x2B85,
}  # fmt: skip
#: The CPythons that uv has, and how the page marks them, and stacks that accept none of them.
BUILDS = tuple(PythonBuild(f"cpython-3.{minor}.1", f"3.{minor}.1", "x86_64", "1") for minor in range(8, 15))
UV, BY_HAND = " (uv)", "by hand"
#: Why a host cannot have a stack: a part of the message of the fault, and the reason for the page.
REASONS = {
    "has code for compute capability up to": "The GPU is newer than the code in the stack.",
    "is made for x86_64": "The host is an Arm server. All stacks are for x86_64.",
    "need a driver of branch": "No driver supports both the GPU and the stack.",
    "takes Python": "No Python that the stack accepts is there.",
}


@dataclass(frozen=True)
class Outcome:
    """What a host gets: the edition, or "" with the reasons why it gets none. ``allow``: the keys and hashes that its
    inventory has to allow. ``nccl``: whether it has a Horovod with NCCL. ``openmpi``: the version of Open MPI that it
    gets, or ""."""

    edition: str
    python: str = ""
    allow: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    nccl: bool = False
    openmpi: str = ""


@cache
def outcome(
    stack: str,
    system: str,
    card: int | None = None,
    *,
    horovod: bool = False,
    sent: bool = True,
    openmpi: str = "auto",
) -> Outcome:
    """Return what a fresh host gets. ``sent``: whether it has got each Python that stacks accept as a tree.
    ``openmpi``: the value of tfctl_openmpi."""
    host = fresh_host(system, card, sent)
    nvidia = stacks.nvidia()
    key = "" if nvidia.keys[nvidia.repositories[system].key].included else "/key.asc"
    preferences = Preferences(horovod=horovod, openmpi=openmpi, nvidia_key_file=key)
    wanted = Wanted(880, ("/srv/tfctl",), ("ops",), stack, preferences, builds=BUILDS)
    decision, messages = decided(host, wanted)
    if not messages:
        return result(decision)
    known = wanted.known()
    every = [name for name, entry in known.items() if not entry.trusted]
    decision, messages = decided(host, allowing(wanted, [ALL]))
    if not messages:
        needed = [name for name in every if decided(host, allowing(wanted, {*every} - {name}))[1]]
        return replace(result(decision), allow=tuple(needed))
    return Outcome("", reasons=tuple(dict.fromkeys(reason(message) for message in messages)))


def decided(host: Facts, wanted: Wanted) -> tuple[Decision, list[str]]:
    decision, faults = decide(host, wanted)
    return decision, [fault["message"] for fault in faults]


def allowing(wanted: Wanted, names: Iterable[str]) -> Wanted:
    return replace(wanted, preferences=replace(wanted.preferences, allow_unverified=tuple(names)))


def result(decision: Decision) -> Outcome:
    assert decision.stack
    nccl = bool(getattr(decision.horovod, "gpu", None))
    python = decision.stack.python
    return Outcome(
        decision.stack.edition,
        f"{python.version} from {python.from_}",
        nccl=nccl,
        openmpi=decision.openmpi.version if decision.openmpi else "",
    )


def reason(message: str) -> str:
    """Return the reason for the page. Raise KeyError if the page would not explain this message."""
    for part, words in REASONS.items():
        if part in message:
            return words
    raise KeyError(message)


@cache
def fresh_host(system: str, card: int | None, sent: bool) -> Facts:
    versions = {python for stack in stacks.load().values() for python in stack.pythons}
    trees = {f"cpython-{version}": version for version in versions} if sent else {}
    return facts(
        system=system,
        title=stacks.systems()[system].title,
        machine="aarch64" if card == CARDS["Grace Hopper (GH200)"] else "x86_64",
        python={**PYTHON, "pythons": of_system(system), "trees": trees, "libc": [2, 31]},
        packager="apt-get" if system.startswith(("debian", "ubuntu")) else "dnf",
        disks={path: {**FREE, "free_mb": 500_000} for path in HOST["disks"]},
        gpu=fresh_gpu(card, "6.8.0-40-generic" if system.startswith("ubuntu") else "6.1.0-18-amd64") if card else None,
    )


def of_system(system: str) -> dict[str, str]:
    """Return the Python that every host with this system has: that of the package python3."""
    pythons = stacks.systems()[system].pythons
    return {version: f"/usr/bin/python{version}" for version, packages in pythons.items() if [*packages] == ["python3"]}


def fresh_gpu(card: int, release: str) -> dict[str, Any]:
    """Return the facts about the GPU of a host whose headers are updated together with its kernel."""
    kernel = {**KERNEL, "release": release, "newest": release, "metapackage": "", "follows": True}
    return {**GPU, "devices": [{"slot": "0000:01:00.0", "id": f"{card:04x}"}], "kernel": kernel}


class Notes:
    """The numbered remarks below a table."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f"({self.texts.index(text) + 1})"

    def lines(self) -> list[str]:
        return [f"{number}. {text}" for number, text in enumerate(self.texts, 1)]


def of_systems() -> list[str]:
    """Return the table of systems and stacks: the Python that each stack gets on a fresh host."""
    names = [*stacks.load()][::-1]
    lines = header("system", names)
    for key, system in stacks.systems().items():
        found = [outcome(name, key, sent=False) for name in names]
        cells = [f"{each.python.partition(' ')[0]}{UV * (' from uv' in each.python)}" or BY_HAND for each in found]
        lines.append(f"| {system.title.partition(' (')[0]} | {' | '.join(cells)} |")
    return lines


def of_gpus() -> list[str]:
    """Return the table of GPUs and stacks: the edition that a host with one gets."""
    notes, names = Notes(), [*stacks.load()][::-1]
    lines = header("GPU", names)
    for title, card in CARDS.items():
        lines.append(f"| {title} | {' | '.join(cell(name, card, notes) for name in names)} |")
    return [*lines, "", *notes.lines()]


def header(first: str, names: list[str]) -> list[str]:
    return [f"| {first} | {' | '.join(f'`{name}`' for name in names)} |", "|---" * (len(names) + 1) + "|"]


def cell(stack: str, card: int, notes: Notes) -> str:
    """Return what hosts get: the most common answer, then the systems that differ."""
    answers = {system: answer(outcome(stack, system, card), notes) for system in stacks.systems()}
    usual = max(dict.fromkeys(answers.values()), key=lambda each: [*answers.values()].count(each))
    others = [f"{stacks.systems()[name].title}: {each}" for name, each in answers.items() if each != usual]
    return "; ".join([usual, *others])


def answer(found: Outcome, notes: Notes) -> str:
    if not found.edition:
        return " ".join(["no", *sorted(map(notes.mark, found.reasons))])
    if found.allow:
        listed = ", ".join(found.allow)
        return f"{found.edition} {notes.mark(f'With `tfctl_allow_unverified: [{listed}]`.')}"
    return found.edition


def page() -> str:
    """Return the text of the page with the tables as they should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    systems, gpus = of_systems(), of_gpus()
    tables = [
        "The Python that each stack gets on each system:",
        "",
        *systems,
        "",
        "The edition that a host with each kind of GPU gets. Where systems differ, they are named:",
        "",
        *gpus,
        "",
        "",
    ]
    return before + BEGIN + "\n" + "\n".join(tables) + END + after


if __name__ == "__main__":
    PAGE.write_text(page())
