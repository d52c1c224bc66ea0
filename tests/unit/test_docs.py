"""The documentation is compared with the code that it describes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from tests.lab import test_tutorial
from tests.unit.doc_blocks import blocks
from tfctl.cli.main import command_line, run
from tfctl.model import stacks
from tfctl.model.jobfile import JobFile, Limits, Policy, RoleSpec
from tfctl.model.load import load
from tfctl.model.strategies import STRATEGIES
from tfctl.wording import abbreviated

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
#: The pages that a reader follows, with job files to copy.
GUIDES = [ROOT / "docs/tutorial.md", *ROOT.glob("docs/howto/*.md")]


def keys(section: str) -> set[str]:
    """The keys in the first column of the table under a heading of docs/job-file.md; the first table for ""."""
    text = (ROOT / "docs" / "job-file.md").read_text()
    body = text.partition(f"## {section}\n")[2] if section else text
    body = re.split(r"\n###? ", body)[0]
    rows = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_job_file_page_lists_exactly_the_keys_of_the_model() -> None:
    assert keys("") == set(JobFile.model_fields)
    assert keys("Roles") == set(RoleSpec.model_fields)
    assert keys("Policy") == set(Policy.model_fields)
    assert keys("Limits") == set(Limits.model_fields)


def test_strategies_page_lists_each_strategy_with_its_roles_and_restarts() -> None:
    rows = [line.split("|")[1:-1] for line in (ROOT / "docs" / "strategies.md").read_text().splitlines() if "|" in line]
    rows_by_name = {cells[0].strip(" `"): cells for cells in rows if len(cells) == 6 and "`" in cells[0]}
    assert set(rows_by_name) == set(STRATEGIES)
    for name, strategy in STRATEGIES.items():
        assert set(re.findall(r"`(\w+)`", rows_by_name[name][1])) == set(strategy.roles), name
        assert int(rows_by_name[name][4]) == strategy.restarts, name


def test_strategies_page_links_an_example_that_uses_each_strategy() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|.*\]\(\.\./(examples/.*)/README.md\) \|$", (ROOT / "docs/strategies.md").read_text(), re.M
    )
    assert {name for name, _ in rows} == set(STRATEGIES)
    for name, folder in rows:
        used = {load(file).strategy for file in (ROOT / folder).glob("*.yaml")}
        assert name in used, f"{folder} has no job file for {name}"


def test_stacks_page_lists_each_stack_with_its_versions() -> None:
    rows = re.findall(
        r"^\| `(tf[\d.]+)` \| (\S+) \|.*\| (\S+) \| (\S+) \|", (ROOT / "docs/stacks.md").read_text(), re.M
    )
    assert {row[0] for row in rows} == set(stacks.load())
    for name, tensorflow, cuda, horovod in rows:
        stack = stacks.get(name)
        built = stack.horovod.version if stack.horovod else "none"
        assert (stack.tensorflow, stack.gpu and stack.gpu.cuda, built) == (tensorflow, cuda, horovod), name


def test_gpu_page_lists_the_oldest_driver_of_each_stack_by_generation() -> None:
    text = (ROOT / "docs/gpu.md").read_text()
    rows = re.findall(r"^\| `(tf[\d.]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.M)
    gpus = {stack.name: stack.gpu for stack in stacks.load().values() if stack.gpu and "9.0" in stack.gpu.ptx}
    branches = stacks.nvidia().ptx
    assert rows == [
        (name, *(gpu.oldest_driver(capability, branches) for capability in ("7.5", "8.0", "9.0")))
        for name, gpu in [*gpus.items()][::-1]
    ]


def commands_of(group: TyperGroup, *words: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each command of tfctl, as the words that a user types, with its options."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands_of(command, *words, name)
        if not isinstance(command, TyperGroup) or command.invoke_without_command:
            yield " ".join([*words, name]), {option for each in command.params for option in each.opts}


def readme_rows() -> Iterator[tuple[list[str], set[str]]]:
    """Yield each row of the README's table: its commands, as a user types them, and the options that it names.

    A cell such as "`tfctl lab up`, `down`" holds the commands `lab up` and `lab down`.
    """
    for cell, text in re.findall(r"^\| (`tfctl .*?) \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE):
        commands: list[list[str]] = []
        for prefix, words in re.findall(r"`(tfctl )?([a-z]+(?: [a-z]+)*)", cell):
            commands.append([*([] if prefix else commands[-1][:-1]), *words.split()])
        yield [" ".join(words) for words in commands], set(re.findall(r"`(--?[a-z-]+)", text))


def test_readme_table_lists_exactly_the_commands_and_no_unknown_option() -> None:
    root = typer.main.get_command(command_line())
    assert isinstance(root, TyperGroup)
    options = dict(commands_of(root))
    rows = list(readme_rows())
    assert sorted(command for commands, _ in rows for command in commands) == sorted(options)
    for commands, named in rows:
        assert named <= set().union(*(options[command] for command in commands)), commands


def test_readme_lists_the_stopped_tasks_in_the_order_of_the_job_file() -> None:
    roles = load(ROOT / "examples" / "digits-ps" / "job.yaml").roles
    stopped = [f"{role}/{n}" for role, spec in roles.items() if role != "chief" for n in range(spec.replicas or 1)]
    assert f"stopped {abbreviated(stopped)}, which had nothing left to do" in (ROOT / "README.md").read_text()


def test_links_between_pages_lead_to_existing_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_links_to_sections_lead_to_existing_headings() -> None:
    for page in PAGES:
        for target, section in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            headings = re.findall(r"^#+ (.*)$", (page.parent / target if target else page).read_text(), re.MULTILINE)
            assert section in {anchor(heading) for heading in headings}, f"{page}: {target}#{section}"


def anchor(heading: str) -> str:
    """Return the name by which GitHub and MyST link a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def job_files() -> Iterator[tuple[str, str]]:
    """Yield the name of each guide that contains a job file, and the job file."""
    for page in GUIDES:
        for indent, block in re.findall(r"^( *)```yaml\n((?:(?! *```).*\n)*)", page.read_text(), re.MULTILINE):
            lines = [line.removeprefix(indent) for line in block.splitlines()]
            if lines[0].startswith("name:"):
                yield page.stem, "\n".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with an inventory. To read it takes Ansible a while, so it is read once."""
    folder = tmp_path_factory.mktemp("guides")
    hosts = [f"node{number} ansible_host=192.0.2.1{number}" for number in range(1, 5)]
    (folder / "hosts.ini").write_text("\n".join(["[gpu]", *hosts, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield folder


@pytest.mark.parametrize(("page", "text"), [*job_files()])
def test_job_files_of_the_guides_have_no_mistakes(
    page: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = folder / page / re.sub(r"\W+", "-", text)[:60]
    code.mkdir(parents=True)
    for name in ["requirements.txt", *re.findall(r"\b\w+\.py\b", text)]:
        (code / name).touch()
    (code / "job.yaml").write_text(text)
    assert (run(["check", str(code / "job.yaml"), "-i", str(folder / "hosts.ini")]), capsys.readouterr().err) == (0, "")


def test_tutorial_shows_the_job_file_that_init_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init", "spirals"]) == 0
    [text] = (text for page, text in job_files() if page == "tutorial" and "name: spirals\n" in text)
    (tmp_path / "spirals/shown.yaml").write_text(text)
    assert load(tmp_path / "spirals/shown.yaml") == load(tmp_path / "spirals/job.yaml")


def test_lab_test_of_the_tutorial_writes_each_file_that_the_page_shows() -> None:
    languages = {".ini": "ini", ".py": "python", ".yaml": "yaml"}
    shown = [block.language for block in blocks(test_tutorial.PAGE) if block.language != "console"]
    assert [languages[Path(name).suffix] for name in test_tutorial.FILES] == shown
    commands = (ROOT / "docs/tutorial.md").read_text()
    assert all(f"\n$ {line}\n" in commands for line in (test_tutorial.TRAIN, test_tutorial.TRAIN_ALL))
    assert test_tutorial.SECOND in commands


def test_structure_page_names_only_existing_files() -> None:
    """A name without a folder is in the last named folder, or in the folder of the last named file."""
    folders = [ROOT]
    names = re.findall(r"`(\w[\w./-]*(?:\.py|/))`", (ROOT / "docs" / "structure.md").read_text())
    assert names
    for name in names:
        if "/" in name:
            path = next((base / name for base in (ROOT, ROOT / "tfctl") if (base / name).exists()), None)
            assert path, name
            folders = [path, path.parent]
        else:
            assert any((place / name).exists() for place in (*folders, ROOT / "tfctl")), name


def test_structure_page_names_only_existing_objects() -> None:
    source = "\n".join(path.read_text() for path in ROOT.glob("tfctl/**/*.py"))
    page = (ROOT / "docs" / "structure.md").read_text()
    rows = [line.split("|")[3] for line in page.splitlines() if line.count("|") == 4]
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert names
    for name in names:
        assert re.search(rf"^(?:class|def) {name}\b|^{name}\b.* = ", source, re.MULTILINE), name
