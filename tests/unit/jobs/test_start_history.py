"""What is remembered of the directories from which jobs were started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfctl.jobs import start_history


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    (tmp_path / "hosts.ini").touch()
    monkeypatch.chdir(tmp_path / "here")
    return start_history._file()


def test_nothing_is_remembered_before_a_start(file: Path) -> None:
    assert not file.exists()
    assert start_history.inventory() is None
    assert not start_history.is_own(["0123abcd"])


def test_runs_and_inventory_are_those_of_the_directory(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_history.remember(str(tmp_path / "hosts.ini"), "0123abcd")
    start_history.remember(str(tmp_path / "hosts.ini"), "89abcdef")
    assert start_history.inventory() == (tmp_path / "hosts.ini", tmp_path / "here")
    assert (
        start_history.is_own(["0123abcd"])
        and start_history.is_own(["x", "89abcdef"])
        and not start_history.is_own(["other"])
    )
    (tmp_path / "here/below").mkdir()
    monkeypatch.chdir(tmp_path / "here/below")
    assert start_history.inventory() == (tmp_path / "hosts.ini", tmp_path / "here")
    assert not start_history.is_own(["0123abcd"])
    monkeypatch.chdir(tmp_path)
    assert start_history.inventory() is None
    assert file.exists()


def test_an_inventory_that_was_deleted_is_not_used(file: Path, tmp_path: Path) -> None:
    start_history.remember(str(tmp_path / "gone.ini"), "0123abcd")
    assert file.exists()
    assert start_history.inventory() is None


def test_an_inventory_of_a_parent_is_used_when_a_nearer_one_was_deleted(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_history.remember(str(tmp_path / "gone.ini"), "0123abcd")
    monkeypatch.chdir(tmp_path)
    start_history.remember(str(tmp_path / "hosts.ini"), "89abcdef")
    monkeypatch.chdir(tmp_path / "here")
    assert file.exists()
    assert start_history.inventory() == (tmp_path / "hosts.ini", tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"inventory": "/old.ini"}', '{"directories": {"/": 5}}'])
def test_a_file_of_another_form_is_ignored_and_replaced(file: Path, text: str, tmp_path: Path) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert start_history.inventory() is None
    start_history.remember(str(tmp_path / "hosts.ini"), "0123abcd")
    assert start_history.is_own(["0123abcd"])


def test_only_the_latest_directories_and_runs_are_kept(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        start_history.remember(str(tmp_path / "hosts.ini"), f"{number:08x}")
    assert not start_history.is_own([f"{9:08x}"]) and start_history.is_own([f"{10:08x}"])
    for number in range(210):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        start_history.remember(str(tmp_path / "hosts.ini"), "0123abcd")
    monkeypatch.chdir(tmp_path / "9")
    assert start_history.inventory() is None
    assert file.stat().st_size < 100_000
