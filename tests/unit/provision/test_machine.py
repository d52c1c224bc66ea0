"""tfctl_machine changes only what differs from the wanted state, so that a second run changes nothing."""

from __future__ import annotations

import base64
import getpass
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import tfctl_machine
from ansible.module_utils.tfctl_machine import Failed, converge

ME = getpass.getuser()


@pytest.fixture(autouse=True)
def numbers_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the user who runs the tests own the files, as root does on a node."""
    mine = staticmethod(lambda _owner, mode: tfctl_machine.Rights(os.geteuid(), os.getegid(), int(mode, 8)))
    monkeypatch.setattr(tfctl_machine.Rights, "of", mine)


def changed(entries: list[dict[str, Any]], act: bool = True) -> list[str]:
    return [change.what for change in converge(entries, act)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def text(content: str) -> str:
    return base64.b64encode(content.encode()).decode()


def test_file_is_created_once(tmp_path: Path) -> None:
    entry = {"file": f"{tmp_path}/etc/conf.d/a.conf", "content": "one\n", "mode": "0640"}
    assert changed([entry], act=False) == [entry["file"]]
    assert not (tmp_path / "etc").exists()
    assert changed([entry]) == [entry["file"]]
    path = tmp_path / "etc/conf.d/a.conf"
    assert (path.read_text(), path.stat().st_mode & 0o7777) == ("one\n", 0o640)
    assert path.parent.stat().st_mode & 0o7777 == 0o755
    assert changed([entry]) == []


@pytest.mark.parametrize("damage", ["path.write_text('other')", "path.chmod(0o666)", "path.unlink()", "link(path)"])
def test_file_is_restored_after_a_manual_change(tmp_path: Path, damage: str) -> None:
    entry = {"file": f"{tmp_path}/a", "content": "one\n"}
    changed([entry])
    path = tmp_path / "a"

    def link(path: Path) -> None:
        path.rename(tmp_path / "b")
        path.symlink_to("b")

    eval(damage, {"path": path, "link": link})
    assert changed([entry]) == [entry["file"]]
    assert path.read_text() == "one\n" and not path.is_symlink()
    assert path.stat().st_mode & 0o7777 == 0o644
    assert changed([entry]) == []


def test_file_is_not_installed_when_its_validation_fails(tmp_path: Path) -> None:
    path = tmp_path / "sudoers"
    path.write_text("good\n")
    entry = {"file": str(path), "content": "bad\n", "validate": ["grep", "-q", "good"]}
    with pytest.raises(Failed, match="grep -q good"):
        changed([entry])
    assert path.read_text() == "good\n"
    assert names(tmp_path) == ["sudoers"]


def test_directory_gets_its_mode_and_refuses_to_replace_a_file(tmp_path: Path) -> None:
    entry = {"directory": f"{tmp_path}/a/b", "mode": "2770"}
    assert changed([entry]) == [entry["directory"]]
    assert (tmp_path / "a/b").stat().st_mode & 0o7777 == 0o2770
    assert changed([entry]) == []
    (tmp_path / "c").write_text("")
    with pytest.raises(Failed, match="is no directory"):
        changed([{"directory": f"{tmp_path}/c"}])


def test_existing_shared_root_is_changed_only_when_it_belongs_to_tfctl(tmp_path: Path) -> None:
    own, theirs, new = (tmp_path / name for name in ("own", "theirs", "new"))
    for path in (own, theirs):
        path.mkdir(mode=0o755)
    entry = {"roots": [str(own), str(theirs), str(new)], "own": str(own), "owner": ME}
    assert changed([entry]) == [str(own), str(new)]
    assert [path.stat().st_mode & 0o7777 for path in (own, theirs, new)] == [0o2770, 0o755, 0o2770]
    assert changed([entry]) == []


def tree(path: Path, **files: str) -> dict[str, Any]:
    modes = {name: "0755" if name == "end" else "0644" for name in files}
    listed = [{"name": name, "base64": text(files[name]), "mode": modes[name]} for name in files]
    return {"tree": str(path), "files": listed}


def test_code_tree_is_installed_compiled_and_runs(tmp_path: Path) -> None:
    path = tmp_path / "1f"
    entry = tree(path, **{"part/__init__.py": "", "part/__main__.py": "print('ran')\n", "end": "#!/bin/sh\n"})
    assert changed([entry]) == [str(path)]
    assert changed([entry]) == []
    compiled = sorted(each.name for each in (path / "part/__pycache__").iterdir())
    assert [name.split(".")[0] for name in compiled] == ["__init__", "__main__"]
    done = subprocess.run(
        [sys.executable, "-m", "part"], cwd=path, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "ran\n"
    assert os.access(path / "end", os.X_OK)


@pytest.mark.parametrize(
    "damage",
    [
        "(path / 'a.py').write_text('x = 2')",
        "(path / 'a.py').unlink()",
        "(path / 'a.py').chmod(0o600)",
        "(path / 'b.py').write_text('')",
        "next((path / '__pycache__').iterdir()).unlink()",
        "next((path / '__pycache__').iterdir()).write_bytes(b'no code')",
    ],
)
def test_code_tree_is_restored_after_a_manual_change(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "1f"
    entry = tree(path, **{"a.py": "x = 1\n"})
    changed([entry])
    eval(damage, {"path": path})
    assert changed([entry], act=False) == [str(path)]
    assert changed([entry]) == [str(path)]
    assert (path / "a.py").read_text() == "x = 1\n" and not (path / "b.py").exists()
    assert changed([entry]) == []
    assert names(tmp_path) == ["1f"]


def test_link_is_switched_and_old_versions_are_deleted(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old", "older")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    entry = {"link": f"{tmp_path}/current", "to": "new", "keep": 2}
    assert changed([entry]) == [entry["link"], f"{tmp_path}/older"]
    assert str((tmp_path / "current").readlink()) == "new"
    assert names(tmp_path) == ["current", "new", "old"]
    assert changed([entry]) == []


def test_command_runs_only_until_its_result_exists(tmp_path: Path) -> None:
    entry = {"command": ["touch", f"{tmp_path}/x.journal"], "creates": f"{tmp_path}/*.journal"}
    assert len(changed([entry], act=False)) == 1
    assert len(changed([entry])) == 1
    assert changed([entry]) == []


def test_command_that_fails_or_is_missing_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"ls /no/such: .*No such file"):
        changed([{"command": ["ls", "/no/such"], "creates": f"{tmp_path}/x"}])
    with pytest.raises(Failed, match="no-such-program is not on this host"):
        changed([{"command": ["no-such-program"], "creates": f"{tmp_path}/x"}])


def test_missing_accounts_are_planned_in_check_mode() -> None:
    entries: list[dict[str, Any]] = [
        {"group": "nosuchgroup", "gid": 880},
        {"user": "nosuchuser", "uid": 880, "home": "/nowhere", "comment": ""},
        {"members": "nosuchgroup", "users": ["root"]},
    ]
    wanted = ["group nosuchgroup", "user nosuchuser", "root in nosuchgroup"]
    assert changed(entries, act=False) == wanted


def test_existing_account_with_another_uid_is_refused() -> None:
    with pytest.raises(Failed, match="user root has number 0 here, 880 is wanted"):
        changed([{"user": "root", "uid": 880, "home": "/root", "comment": ""}], act=False)


def test_entry_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Failed, match="an entry is one of"):
        changed([{"flie": "/a"}])


def test_absent_file_is_deleted_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x")
    assert changed([{"absent": str(path)}], act=False) == [str(path)] and path.exists()
    assert changed([{"absent": str(path)}]) == [str(path)]
    assert (changed([{"absent": str(path)}]), names(tmp_path)) == ([], [])


def test_command_runs_again_when_its_input_is_newer(tmp_path: Path) -> None:
    source, result = tmp_path / "source", tmp_path / "made"
    source.write_text("one")
    entry = {"command": ["cp", str(source), str(result)], "creates": str(result), "newer": [str(source)]}
    assert (len(changed([entry])), changed([entry])) == (1, [])
    source.write_text("two")
    os.utime(source, (result.stat().st_mtime + 9,) * 2)
    assert len(changed([entry])) == 1
    assert result.read_text() == "two"
