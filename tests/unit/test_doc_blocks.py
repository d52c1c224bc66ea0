"""The commands, job files and variables in the documentation exist. doc_blocks.py describes the comments for tests."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from tests.unit.doc_blocks import ROOT, Block, blocks, inline_commands, pages
from tfctl.cli import main
from tfctl.jobs.prometheus import METRICS
from tfctl.model.host import VARIABLES
from tfctl.model.jobfile import JobFile
from tfctl.model.load import load

PAGES = pages()
BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMANDS = [block for block in BLOCKS if block.commands]
#: What a fragment of a job file is completed with.
BASE = {"name": "j", "strategy": "custom", "command": "run", "roles": {"worker": 1}}


@pytest.fixture(scope="module")
def root() -> Any:
    return typer.main.get_command(main.command_line())


def command_of(root: Any, words: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the command that the first words name, and the other words."""
    command, rest = root, list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return command, rest


def test_commands_of_the_pages_are_found() -> None:
    assert ["start", "job.yaml"] in [words[:2] for block in COMMANDS for words in block.commands]
    assert Block("p", 1, "", "$ A=b tfctl status   shows it\n→ tfctl stop j && x\n", "", "").commands == [
        ["status"],
        ["stop", "j"],
    ]


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.place)
def test_command_of_a_page_parses(root: Any, block: Block) -> None:
    for words in block.commands:
        command, rest = command_of(root, words)
        if words == ["--version"]:
            continue  # parsing it prints the version
        assert command is not root, f"{block.place}: tfctl {words[0]}: no such command"
        try:
            command.make_context("tfctl", rest)
        except Exception as error:  # the class is private to typer
            pytest.fail(f"{block.place}: tfctl {' '.join(words)}: {getattr(error, 'message', error)}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_command_within_the_text_of_a_page_exists(root: Any, page: Path) -> None:
    for words in inline_commands(page):
        command, rest = command_of(root, words)
        assert command is not root, f"{page.name}: tfctl {words[0]}: no such command"
        known = {option for each in command.params for option in each.opts} | {"-h", "--help", "--"}
        own = rest[: rest.index("--")] if "--" in rest else rest
        unknown = {word.partition("=")[0] for word in own if word.startswith("-")} - known
        assert not unknown, f"{page.name}: tfctl {' '.join(words)}: no such option: {unknown}"


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.commands or block.programs], ids=lambda block: block.place
)
def test_commands_of_a_page_are_run_by_a_test_or_marked(block: Block) -> None:
    kind, _, rest = block.run.partition(" by ")
    if kind == "run" and rest:
        texts = "\n".join((ROOT / name).read_text("utf-8") for name in rest.split())
        if f'"{block.page}"' in texts:
            return  # the test reads the page and runs what it finds
        named = [*(words[0] for words in block.commands), *block.programs]
        missing = [name for name in named if not re.search(rf"\b{name}\b", texts)]
        assert not missing, f"{block.place}: {rest} does not run: {missing}"
    else:
        assert block.run == "run" or re.match(r"not run: \w+", block.run), f"{block.place}: mark it (tests/README.md)"


RUN = {block.page: [each for each in COMMANDS if each.page == block.page and each.run == "run"] for block in COMMANDS}


@pytest.mark.parametrize("page", [page for page, found in RUN.items() if found])
def test_commands_that_need_no_hosts_succeed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for block in RUN[page]:
        for words in block.commands:
            assert main.run(words) == 0, f"{block.place}: tfctl {' '.join(words)}: {capsys.readouterr().err}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "inventory/example.ini"], ids=lambda page: page.name)
def test_lists_in_an_ini_inventory_are_python_literals(page: Path) -> None:
    """Ansible passes on any other value as text: with JSON's ``true``, for example, a list is none."""
    for value in re.findall(r"^ *#?tfctl_\w+=([\[{].*)$", page.read_text(), re.MULTILINE):
        ast.literal_eval(value)


def job_files() -> Iterator[tuple[Block, dict[str, Any]]]:
    """Yield each block that is a job file or a fragment of one, completed to a job file."""
    for block in BLOCKS:
        data = _mapping(block.text)
        if block.kind.startswith("fragment: "):
            data = {block.kind.removeprefix("fragment: "): data}
        if data and data.keys() & JobFile.model_fields.keys() and block.kind != "not a job file":
            yield block, data if data.keys() >= {"name", "strategy"} else {**BASE, **data}


def _mapping(text: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return data if isinstance(data, dict) else {}


def test_job_files_of_the_pages_are_found() -> None:
    names = {block.page for block, _ in job_files()}
    assert {"README.md", "docs/job-file.md", "docs/reliability.md", "docs/runtime.md"} <= names


@pytest.mark.parametrize(("block", "data"), [*job_files()], ids=lambda value: getattr(value, "place", ""))
def test_job_file_of_a_page_is_valid(block: Block, data: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(block.text if data == _mapping(block.text) else yaml.safe_dump(data))
    load(file)


def test_variables_named_on_the_pages_exist() -> None:
    names = {path.stem for folder in ("playbooks", "roles") for path in (ROOT / folder).rglob("tfctl*")}
    # The last one is an example of a mistake.
    known = {*VARIABLES, *names, *(metric.name for metric in METRICS), "tfctl_runtime", "tfctl_stck"}
    for page in PAGES:
        named = set(re.findall(r"\btfctl_[a-z0-9_]+\b(?!\.service)", page.read_text("utf-8")))
        assert named <= known, f"{page}: {named - known}"
