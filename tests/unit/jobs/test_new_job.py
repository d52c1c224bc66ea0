"""`tfctl init`: what it writes is right for every strategy, and nothing is overwritten."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from tfctl.cli.main import run
from tfctl.model.json_schema import job_schema
from tfctl.model.load import load
from tfctl.model.strategies import STRATEGIES
from tfctl.remote import inventory

FILES = ["job.yaml", "train.py", "hosts.ini"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for several tests, because Ansible takes a second to read the inventory of a new one."""
    return tmp_path_factory.mktemp("new")


@pytest.fixture(autouse=True)
def _own_cache(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_init_writes_a_job_without_mistakes_for_each_strategy(
    strategy: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "my-job"
    shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.chdir(place)
    assert run(["init", "my-job", "--strategy", strategy]) == 0
    captured = capsys.readouterr()
    assert captured.out.split() == [f"my-job/{name}" for name in FILES]
    assert captured.err.splitlines() == [
        "to run the job on this machine: tfctl run my-job/job.yaml",
        "to run it on your own machines, enter them in my-job/hosts.ini, then: tfctl preflight my-job/hosts.ini",
    ]
    job = load(folder / "job.yaml")
    assert (job.name, job.strategy, job.inventory) == ("my-job", strategy, folder / "hosts.ini")
    assert (job.output == "local") == (not STRATEGIES[strategy].why_shared)
    assert run(["check", "my-job/job.yaml"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("my-job: no errors; ") and captured.err == ""
    assert run(["render", "my-job/job.yaml"]) == 0
    ast.parse((folder / "train.py").read_text())
    text = (folder / "job.yaml").read_text()
    assert list(Draft7Validator(job_schema()).iter_errors(yaml.safe_load(text))) == []
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_init_here_writes_an_inventory_with_which_each_strategy_runs_on_this_machine(
    strategy: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "own-machine"
    shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.chdir(place)
    assert run(["init", "own-machine", "--here", "--strategy", strategy]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "to run the job on this machine: tfctl run own-machine/job.yaml",
        "to run it as a service of this machine: tfctl provision own-machine/hosts.ini; "
        "tfctl start own-machine/job.yaml",
    ]
    [host] = inventory.load(folder / "hosts.ini").hosts
    assert (host.name, host.is_local, host.stack) == ("localhost", True, load(folder / "job.yaml").stack)
    assert run(["check", "own-machine/job.yaml"]) == 0
    capsys.readouterr()
    assert run(["render", "own-machine/job.yaml"]) == 0
    assert ("127.0.0.1:2222" in capsys.readouterr().out) == (strategy != "mirrored")


def test_init_prints_the_paths_as_json_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "my-job", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"files": [f"my-job/{name}" for name in FILES]}
    assert run(["init", "my-job", "-o", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["exit"], error["remedy"]) == (2, "name a new directory")


def test_new_job_file_says_how_an_editor_finds_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "my-job"]) == 0
    text = (tmp_path / "my-job/job.yaml").read_text()
    found = re.search(r"`tfctl (schema) > ([\w.]+)`", text)
    assert found and f"\n## yaml-language-server: $schema={found[2]}\n" in text
    capsys.readouterr()
    assert run([found[1]]) == 0
    assert json.loads(capsys.readouterr().out) == job_schema()


def test_init_begins_in_the_current_directory_with_a_strategy_that_needs_no_shared_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "3 Größte Läufe!").mkdir()
    monkeypatch.chdir(tmp_path / "3 Größte Läufe!")
    assert run(["init"]) == 0
    assert capsys.readouterr().out.split() == FILES
    job = load(Path("job.yaml"))
    assert (job.name, job.strategy, job.output) == ("gr-te-l-ufe", "mirrored", "local")


@pytest.mark.parametrize("name", FILES)
def test_init_overwrites_nothing_and_writes_nothing_beside_what_is_there(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("mine")
    assert run(["init", "."]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"tfctl: {name} exists already\n  → name a new directory\n")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_init_does_not_follow_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "train.py").symlink_to(tmp_path / "elsewhere.py")
    assert run(["init"]) == 2
    assert not (tmp_path / "elsewhere.py").exists()


def test_init_suggests_a_strategy_for_an_unknown_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "new", "-s", "mirored"]) == 2
    assert "--strategy: 'mirored' is not known\n  → did you mean `mirrored`?" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_init_names_a_directory_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(["init", "file/job"]) == 3
    assert "cannot be written: Not a directory" in capsys.readouterr().err
