"""The code that a client sends: what is unpacked, what is refused, and who owns it then."""

from __future__ import annotations

import io
import os
import pwd
import tarfile
from pathlib import Path

import pytest
from node_tree import ACCOUNT, Tree, digest, link, make_plan, make_task, refused, reserve, tarball

from tfctl.node import names
from tfctl.node.code import copy, unpack
from tfctl.node.system import System

GOOD = tarball(
    {"a/train.py": "x = 1\n", "run.sh": "#!/bin/sh\n"}, link("a/latest", "train.py"), link("b", "a/../run.sh")
)


def member(name: str, kind: bytes) -> tarfile.TarInfo:
    return link(name, "", kind)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_code_is_stored_once_and_each_attempt_has_its_own_copy(tree: Tree) -> None:
    with tree.start(code=GOOD) as session:
        reserve(session, make_plan(make_task(command=["./run.sh"]), code=GOOD), GOOD)
        stored, own = tree / names.stored_code(digest(GOOD) or ""), tree / names.code_dir("digits", 1)
        for copy, user in ((stored, os.geteuid()), (own, pwd.getpwnam(ACCOUNT).pw_uid)):
            assert (copy / "a/latest").read_text() == "x = 1\n"
            assert mode(copy / "a/train.py") == 0o640
            assert mode(copy / "run.sh") == 0o750
            assert {path.lstat().st_uid for path in copy.rglob("*")} == {user}
            assert str((copy / "b").readlink()) == "a/../run.sh"
        session.ask("go", "started")
        session.ask("keep", "kept")
    with tree.session("start", job="other", code=digest(GOOD), ports=[2222, 2222], resolve=[]) as session:
        assert session.expect("hello")["code"] is True
        reserve(session, make_plan(make_task(job="other"), job="other", code=GOOD))
    assert stored.is_dir()


def test_code_and_attempts_are_readable_by_root_and_the_jobs_group_only(tree: Tree) -> None:
    code = tarball({"train.py": "x = 1\n", "run.sh": "#!/bin/sh\n"}, link("a", "", tarfile.DIRTYPE))
    with tree.start(code=code) as session:
        reserve(session, make_plan(make_task(command=["./run.sh"]), code=code), code)
        group = pwd.getpwnam(ACCOUNT).pw_gid
        for top in (tree / names.stored_code(digest(code) or ""), tree / names.attempt_dir("digits", 1)):
            assert (mode(top), top.stat().st_gid) == (0o750, group)
            for path in (top, *(top / name for name in ("code", "code/run.sh", "run.sh", "train.py", "a"))):
                if path.exists():
                    assert (mode(path) & 0o007, path.stat().st_gid) == (0, group), path


def test_the_copy_of_an_attempt_is_made_as_root_where_only_root_may_enter(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that runs as the jobs' user, without a sandbox, would let tasks out of theirs through /proc."""
    name = "ab" * 32
    stored = tree / names.stored_code(name)
    (stored / "a").mkdir(parents=True)
    (stored / "a/train.py").write_text("x = 1\n")
    (stored / "latest").symlink_to("a/train.py")
    seen, program = tmp_path / "seen", tmp_path / "cp"
    program.write_text(
        f'#!/bin/sh\nfor target; do :; done\necho "$(id -u) $(stat -c %a "$target")" >{seen}\nexec /bin/cp "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    user, own = pwd.getpwnam(ACCOUNT), tree / "own"
    copy(System(str(tree.path), ACCOUNT), name, own)
    assert seen.read_text() == f"{os.geteuid()} 700\n"
    for path in (own, *own.rglob("*")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (user.pw_uid, user.pw_gid), path
    assert mode(own) == 0o750


def test_code_is_on_the_disk_before_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, bytes] = {}

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}")
        written[os.path.relpath(path.readlink(), tmp_path)] = path.read_bytes()

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.chdir(tmp_path)
    unpack(io.BytesIO(GOOD))
    assert written == {"a/train.py": b"x = 1\n", "run.sh": b"#!/bin/sh\n"}


@pytest.mark.parametrize(("packed", "kept"), [(0o600, 0o640), (0o400, 0o440), (0o700, 0o750), (0o200, 0o640)])
def test_the_mode_of_a_packed_file_is_kept_for_the_owner(packed: int, kept: int, tree: Tree) -> None:
    key = link("key", "", tarfile.REGTYPE)
    key.mode = packed
    code = tarball(None, key)
    with tree.start(code=code) as session:
        reserve(session, make_plan(code=code), code)
        for copy in (names.stored_code(digest(code) or ""), names.code_dir("digits", 1)):
            assert mode(tree / copy / "key") == kept


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (tarball(None, link("x", "/etc/passwd")), "leads out of its directory: x"),
        (tarball(None, link("a/x", "../../y")), "leads out of its directory: a/x"),
        (tarball({"a/b/f": ""}, link("a/b/up", "../.."), link("x", "a/b/up/../y")), "leads out of its directory: x"),
        (tarball(None, link("a", "."), member("a/b", tarfile.DIRTYPE)), "behind a link"),
        (tarball({"../x": "y"}), "outside its directory: ../x"),
        (tarball({"/x": "y"}), "outside its directory: /x"),
        (tarball({"f": ""}, link("h", "f", tarfile.LNKTYPE)), "neither file nor directory nor link"),
        (tarball(None, member("p", tarfile.FIFOTYPE)), "neither file nor directory nor link"),
        (tarball(None, member("d", tarfile.CHRTYPE)), "neither file nor directory nor link"),
        (b"no tarball", "cannot be unpacked"),
        (GOOD[:-20], "cannot be unpacked"),
    ],
    ids=[
        "absolute", "above", "by-detour", "through-link", "member-above", "member-absolute", "hard", "fifo", "device",
        "noise", "cut",
    ],
)  # fmt: skip
def test_refused_code_leaves_nothing(tree: Tree, code: bytes, message: str) -> None:
    before = tree.files()
    for _ in range(2):
        with tree.start(code=code) as session:
            error = refused(session, make_plan(code=code), code)
        assert (error["exit"], message in error["message"]) == (3, True), error
        assert [name for name in tree.files() if name != "run/tfctl/lock"] == before


def test_code_with_another_size_or_digest_is_refused(tree: Tree) -> None:
    with tree.start(code=GOOD) as session:
        session.tell("plan", make_plan(code=GOOD))
        session.tell("code", {"size": 5})
        session.say(b"other")
        error = session.expect("refused")["error"]
        assert (error["exit"], "does not match its announced digest" in error["message"]) == (1, True)
    with tree.start(code=GOOD) as session:
        reserve(session, make_plan(code=GOOD), GOOD)


def test_code_is_removed_when_the_client_dies_while_sending_it(tree: Tree) -> None:
    with tree.start(code=GOOD) as session:
        session.tell("plan", make_plan(code=GOOD))
        session.tell("code", {"size": len(GOOD)})
        session.say(GOOD[:50])
        assert session.hang_up() == 1
    assert list((tree / names.CODE_STORE).iterdir()) == []
