"""The generated pages of the reference equal what the code says, and describe everything that they have to."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main

from scripts.reference_pages import commands, docstrings, inventory, json_objects, pages
from tfctl.cli.main import command_line
from tfctl.cli.objects import OBJECTS
from tfctl.cli.tables import EVENTS, JOBS, TASKS, EventObject, JobObject, TaskObject
from tfctl.model.host import VARIABLES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return pages()


def test_committed_pages_equal_what_the_script_writes(written: dict[str, str]) -> None:
    stale = [name for name, text in written.items() if (ROOT / name).read_text() != text]
    assert not stale, "run scripts/reference"


def test_no_page_of_the_reference_is_left_over(written: dict[str, str]) -> None:
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "docs/reference").iterdir()}
    assert there == {name for name in written if name.startswith("docs/reference/")}


def test_each_command_with_json_output_has_a_typed_object() -> None:
    found = commands.commands(typer.main.get_command(command_line()))
    options = {name: [option for each in command.params for option in each.opts] for name, command in found}
    assert {name for name, spelled in options.items() if "-o" in spelled} == set(OBJECTS)


def test_each_command_prints_json_except_those_that_print_another_format() -> None:
    names = {name for name, _ in commands.commands(typer.main.get_command(command_line()))}
    assert names - set(OBJECTS) == {"completion", "metrics", "schema", "ui"}


def test_tables_print_exactly_the_keys_of_their_objects() -> None:
    assert keys(TASKS) == set(TaskObject.__annotations__)
    assert keys(JOBS) | {"tasks", "why"} == set(JobObject.__annotations__)
    assert keys(EVENTS) == set(EventObject.__annotations__)


def keys(table: object) -> set[str]:
    return {key for column in vars(table)["_columns"] for key in column.keys}


def test_every_key_of_every_object_has_a_meaning(written: dict[str, str]) -> None:
    page = written["docs/reference/json.md"]
    assert [line for line in page.splitlines() if line.endswith("| |")] == []


def test_objects_of_the_json_page_have_distinct_titles(written: dict[str, str]) -> None:
    titles = [line for line in written["docs/reference/json.md"].splitlines() if line.startswith("#")]
    assert len(titles) == len(set(titles))


def test_inventory_page_describes_each_variable_once() -> None:
    rows = [line.split("`")[1] for line in inventory.page().splitlines() if line.startswith("| `")]
    assert rows == [*VARIABLES]


class Told:
    """What it is. ``one``: the first; ``two``, ``three``: the others, or None. More about them.

    ``four`` is a sentence.
    """


def test_docstring_is_divided_into_the_meanings_of_its_fields() -> None:
    others = "the others, or null. More about them."
    about, meanings = docstrings.told(Told)
    assert about == "What it is."
    assert meanings == {"one": "the first", "two": others, "three": others, "four": "`four` is a sentence."}


def test_type_of_a_key_is_described_in_words() -> None:
    assert json_objects.in_words(dict[str, list[int]]) == "object, each value: list of integer"
    assert json_objects.in_words(tuple[int, str] | None) == "list of 2: integer, string or null"
