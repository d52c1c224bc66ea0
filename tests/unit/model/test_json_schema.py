"""The JSON Schema of the job file accepts what tfctl accepts, as an editor reads it, and is the one in docs/."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.unit.model.job_files import ACCEPTED, FAULTS, GOOD, with_line, with_lines
from tfctl.cli.main import run
from tfctl.errors import BadFile
from tfctl.model.json_schema import job_schema
from tfctl.model.load import load

ROOT = Path(__file__).parents[3]
SCHEMA = Draft7Validator(job_schema())
PAGE = (ROOT / "docs/job-file.md").read_text()
FILES = sorted([*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("tests/golden/*/job.yaml")])
#: The job files in the documentation: those blocks that have all keys that are required.
BLOCKS = [
    textwrap.dedent(block)
    for page in (PAGE, (ROOT / "README.md").read_text())
    for block in re.findall(r"(?:^    .*\n)+", page, re.MULTILINE)
    if block.startswith("    name:")
]


class _Core(yaml.SafeLoader):
    """YAML 1.2, as editors read it (chapter 10.3, core schema), and merge keys."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012


for kind, pattern in (
    ("null", r"~|null|Null|NULL|"),
    ("bool", r"true|True|TRUE|false|False|FALSE"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
    ("merge", r"<<"),
):
    _Core.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$"), None)


def _integer(_: _Core, node: yaml.ScalarNode) -> int:
    text = node.value
    return int(text.replace("o", ""), 8) if "o" in text else int(text, 16 if "x" in text else 10)


_Core.add_constructor("tag:yaml.org,2002:int", _integer)


def faults(text: str) -> list[str]:
    return [error.message for error in SCHEMA.iter_errors(yaml.load(text, _Core))]


@pytest.mark.parametrize("lines", ACCEPTED)
def test_every_form_that_tfctl_accepts_is_valid(lines: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(with_lines(lines))
    load(tmp_path / "job.yaml")
    assert faults(with_lines(lines)) == []


#: What no schema can express, or what the editor's YAML reads as text.
BEYOND = {
    "policy: {on_stall: fail}",
    "policy: {stall: 15m, on_stall: restart}",
    "roles: {worker: {replicas: 1, per_host: 1}}",
    "command: a && b",
    "command: |\n  python a.py\n  python b.py",
    "command: 'a \"b'",
    'env: {X: "a\\0b"}',
    'env: {X: "\\a"}',
    'env: {X: "\\ud800"}',
    "ports: 2299-2222",
    "code: {include: [../.env]}",
    "code: ~no-such-user/src",
    'inventory: "a\\0b"',
    "roles: {worker: {limits: {memory: 9999999T}}}",
    "roles: {worker: {limits: {cpus: .nan}}}",
    "roles: {worker: {limits: {cpus: 0.333}}}",
    "progress: 'loss (?P<loss>.+)'",
    "progress: 'x{99999999999}(?P<step>1)'",
    "progress: '(?L)(?P<step>1)'",
    f"progress: {'(' * 3000}{')' * 3000}",
}


@pytest.mark.parametrize("line", [line for line, _ in FAULTS])
def test_job_file_that_tfctl_refuses_is_invalid_by_the_schema_if_a_schema_can_express_it(line: str) -> None:
    try:
        found = faults(with_line(line))
    except yaml.YAMLError:
        found = ["not YAML"]
    assert (not found) == (line in BEYOND), found


@pytest.mark.parametrize(
    "lines",
    [
        "strategy: mirrored\nroles: {ps: 1, worker: 1}",
        "strategy: parameter_server\nroles: {worker: 1}",
        "strategy: mirrored\nlauncher: mpi",
        "strategy: horovod\nenvironment: cloud",
        "strategy: costum",
        "strategy: multi_worker_mirrored\noutput: local",
    ],
)
def test_job_file_that_the_strategy_refuses_is_invalid(lines: str) -> None:
    assert faults(with_lines(lines))


@pytest.mark.parametrize("text", ["", "- a\n", "words", "name: digits\n", GOOD.replace("name: digits\n", "")])
def test_job_file_without_a_required_key_is_invalid(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(BadFile):
        load(tmp_path / "job.yaml")
    assert faults(text)


@pytest.mark.parametrize(
    "file",
    sorted([*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("tests/golden/*/job.yaml")]),
    ids=lambda file: file.parent.name,
)
def test_every_example_is_valid_and_names_the_schema(file: Path) -> None:
    text = file.read_text()
    assert faults(text) == []
    if "examples" in file.parts:
        modeline = re.match(r"# yaml-language-server: \$schema=(.*)\n", text)
        assert modeline and (file.parent / modeline[1]).samefile(ROOT / "docs/job.schema.json")


def test_job_files_in_the_documentation_are_valid() -> None:
    assert len(BLOCKS) >= 2
    assert [faults(block) for block in BLOCKS] == [[]] * len(BLOCKS)


def test_every_key_has_a_description_without_links_or_references() -> None:
    schema = job_schema()
    keys = dict(schema["properties"])
    for name in ("Limits", "Policy"):
        keys |= schema["$defs"][name]["properties"]
    keys |= schema["$defs"]["RoleSpec"]["anyOf"][1]["properties"]
    for key, value in keys.items():
        assert re.fullmatch(r"[A-Z`].{10,}[^.:;]", value["description"]), key
        assert "](" not in value["description"] and "below" not in value["description"], key


def test_the_published_schema_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """After a change: tfctl schema > docs/job.schema.json."""
    assert run(["schema"]) == 0
    printed = capsys.readouterr().out
    assert printed == (ROOT / "docs/job.schema.json").read_text()
    Draft7Validator.check_schema(json.loads(printed))
