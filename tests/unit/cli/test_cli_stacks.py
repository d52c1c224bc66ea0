"""`tfctl stacks`: the table, what a stack consists of, and the same as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.provision.test_stacks import own_stack
from tfctl.cli import main
from tfctl.model import stacks


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.run(words) == 0
    return capsys.readouterr().out


def test_the_table_has_every_stack(capsys: pytest.CaptureFixture[str]) -> None:
    header, *rows = said(capsys, "stacks").splitlines()
    assert header.split() == ["STACK", "TENSORFLOW", "PYTHON", "CUDA", "HOROVOD", "FROM", "TRIED", "ON"]
    assert [row.split()[0] for row in rows] == list(stacks.load())
    (classic,) = (row for row in rows if row.startswith("tf2.0 "))
    assert classic.split() == ["tf2.0", "2.0.0", "3.7", "3.6", "10.0", "0.18.2", "tfctl", "debian-12"]


def test_stacks_as_json_are_the_data_itself(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(said(capsys, "stacks", "-o", "json"))["stacks"]
    assert [each["name"] for each in told] == list(stacks.load())
    assert json.loads(said(capsys, "stacks", "explain", "tf2.15", "-o", "json")) in told


@pytest.mark.parametrize("name", stacks.load())
def test_explain_shows_the_contents_of_a_stack(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "stacks", "explain", name)
    stack = stacks.get(name)
    assert text.startswith(f"{name}: {stack.title}\n")
    assert (stack.horovod.version if stack.horovod else "no release builds for it") in text
    for label, edition in stack.editions.items():
        assert f"edition {label}: " in text
        assert all(each in text for each in edition.substitutes.values())


def test_explaining_an_unknown_stack_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["stacks", "explain", "tf9"]) == 3
    assert "there is no stack tf9\n" in capsys.readouterr().err


def test_the_table_shows_where_a_stack_of_the_inventory_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own_stack(tmp_path / "stacks")
    (tmp_path / "hosts.ini").write_text("node1\n[all:vars]\ntfctl_stack_dirs=stacks\n")
    inventory = ["-i", str(tmp_path / "hosts.ini")]
    monkeypatch.setenv("TFCTL_INVENTORY", inventory[1])
    assert said(capsys, "stacks") == said(capsys, "stacks", *inventory)
    assert said(capsys, "stacks", "explain", "mine") == said(capsys, "stacks", "explain", "mine", *inventory)
    *_, last = said(capsys, "stacks", *inventory).splitlines()
    assert last.split() == ["mine", "2.15.1", "3.11", "-", "-", str(file), "-"]
    assert f"from {file}" in said(capsys, "stacks", "explain", "mine", *inventory)
    assert json.loads(said(capsys, "stacks", *inventory, "-o", "json"))["stacks"][-1]["file"] == str(file)
    file.write_text("name: mine\n")
    stacks.load.cache_clear()
    assert main.run(["stacks", *inventory]) == 3
    assert f"{file}: title: missing" in capsys.readouterr().err
