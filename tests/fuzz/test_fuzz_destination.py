"""Whatever paths and links a host sends to `tfctl pull`: nothing is written outside of the directory, and no link in it
leads out."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from tests.fuzz.cases import FUZZER, Cases
from tfctl.errors import TfctlError
from tfctl.jobs.destination import Destination

pytestmark = FUZZER

PARTS = [
    "a", "b", "..", ".", "", "c", ".tfctl-pull", "A", "a\0", "output", "x" * 300, "é", "\udcff", "-", "*", "a\nb",
]  # fmt: skip


def path(draw: Random, *more: str) -> str:
    return "/".join(draw.choice([*PARTS, *more]) for _ in range(draw.randint(1, 4)))


def receive(destination: Destination, draw: Random) -> None:
    """Make a file or a link, as far as the destination lets a host."""
    place = path(draw)
    if draw.random() < 0.5:
        destination.link(place, draw.choice(["", "/", "../"]) + path(draw, "../../beside", "outside"))
    else:
        with destination.part(place, 3, 10**18) as part:
            part.write(b"bad")
            part.complete()


def leads_out(folder: Path) -> list[str]:
    """Return the links below a directory whose targets are not below it."""
    found = [Path(place, name) for place, *kinds in os.walk(folder) for names in kinds for name in names]
    links = [each for each in found if each.is_symlink()]
    real = os.path.realpath(folder)  # unlike Path.resolve, it accepts links to themselves
    return [str(each) for each in links if not Path(os.path.realpath(each)).is_relative_to(real)]


def test_nothing_that_a_host_sends_leaves_the_directory(tmp_path: Path) -> None:
    cases, made = Cases(400), 0
    for number, draw in cases:
        top = tmp_path / str(number)
        (top / "beside").mkdir(parents=True)
        (top / "outside").write_text("safe")
        (top / "beside/x").write_text("safe")
        with Destination(top / "destination", "digits") as destination:
            for _ in range(12):
                try:
                    receive(destination, draw)
                    made += 1
                except (TfctlError, UnicodeEncodeError, ValueError):
                    pass
        others = sorted(str(each.relative_to(top)) for each in top.rglob("*") if "destination" not in each.parts)
        if others != ["beside", "beside/x", "outside"] or {each.read_text() for each in top.glob("*side*/x")} != {
            "safe"
        }:
            cases.fault(number, "something was written outside", others)
        if (top / "outside").read_text() != "safe":
            cases.fault(number, "a file outside was written", (top / "outside").read_text())
        if links := leads_out(top / "destination"):
            cases.fault(number, "a link leads out", links)
    cases.require_none(least=50)
    assert made > cases.made
