"""What the documentation says is tested against what it speaks of."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main

from tfctl.cli.main import app
from tfctl.model import stacks
from tfctl.model.jobfile import JobFile, Policy, RoleSpec
from tfctl.model.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]


def keys(section: str) -> set[str]:
    """The keys in the first column of the table under a heading of docs/job-file.md; the first table for ""."""
    text = (ROOT / "docs" / "job-file.md").read_text()
    body = text.partition(f"## {section}\n")[2] if section else text
    body = body.partition("\n## ")[0]
    rows = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_the_page_of_the_job_file_has_every_key_and_no_other() -> None:
    assert keys("") == set(JobFile.model_fields)
    assert keys("Roles") == set(RoleSpec.model_fields)
    assert keys("Policy") == set(Policy.model_fields)


def test_the_page_of_strategies_has_each_with_its_roles_and_restarts() -> None:
    rows = [line.split("|")[1:-1] for line in (ROOT / "docs" / "strategies.md").read_text().splitlines() if "|" in line]
    told = {cells[0].strip(" `"): cells for cells in rows if len(cells) == 6 and "`" in cells[0]}
    assert set(told) == set(STRATEGIES)
    for name, strategy in STRATEGIES.items():
        assert set(re.findall(r"`(\w+)`", told[name][1])) == set(strategy.roles), name
        assert int(told[name][4]) == strategy.restarts, name


def test_the_readme_has_every_strategy_with_an_example() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == set(STRATEGIES)
    assert {name for name, example in rows if "examples/" in example} == set(STRATEGIES)


def test_the_page_of_stacks_has_each_with_its_versions() -> None:
    rows = re.findall(
        r"^\| `(tf[\d.]+)` \| (\S+) \|.*\| (\S+) \| (\S+) \|", (ROOT / "docs/stacks.md").read_text(), re.M
    )
    assert {row[0] for row in rows} == set(stacks.load())
    for name, tensorflow, cuda, horovod in rows:
        stack = stacks.get(name)
        built = stack.horovod.version if stack.horovod else "none"
        assert (stack.tensorflow, stack.gpu and stack.gpu.cuda, built) == (tensorflow, cuda, horovod), name


def test_the_readme_has_every_verb() -> None:
    text = (ROOT / "README.md").read_text()
    for verb in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"tfctl {verb}" in text or f"`{verb}" in text, verb


def test_every_file_that_a_page_links_to_is_there() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
