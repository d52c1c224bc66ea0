"""The code that a client sends: what is unpacked, what is refused, and whose it is then."""

from __future__ import annotations

import os
import pwd
import tarfile

import pytest
from node_tree import ACCOUNT, Tree, digest, link, make_plan, make_task, refused, reserve, tarball

from tfctl.node import names

GOOD = tarball(
    {"a/train.py": "x = 1\n", "run.sh": "#!/bin/sh\n"}, link("a/latest", "train.py"), link("b", "a/../run.sh")
)


def member(name: str, kind: bytes) -> tarfile.TarInfo:
    return link(name, "", kind)


def test_it_is_stored_once_and_each_attempt_has_its_own(tree: Tree) -> None:
    with tree.start(code=GOOD) as talk:
        reserve(talk, make_plan(make_task(command=["./run.sh"]), code=GOOD), GOOD)
        stored, own = tree / names.stored_code(digest(GOOD) or ""), tree / names.code_dir("digits", 1)
        for copy, user in ((stored, os.geteuid()), (own, pwd.getpwnam(ACCOUNT).pw_uid)):
            assert (copy / "a/latest").read_text() == "x = 1\n"
            assert (copy / "a/train.py").stat().st_mode & 0o777 == 0o644
            assert (copy / "run.sh").stat().st_mode & 0o777 == 0o755
            assert {path.lstat().st_uid for path in copy.rglob("*")} == {user}
            assert str((copy / "b").readlink()) == "a/../run.sh"
        talk.ask("go", "started")
        talk.ask("keep", "kept")
    with tree.talk("start", job="other", code=digest(GOOD), ports=[2222, 2222], resolve=[]) as talk:
        assert talk.expect("hello")["code"] is True
        reserve(talk, make_plan(make_task(job="other"), job="other", code=GOOD))
    assert stored.is_dir()


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
def test_what_is_refused_leaves_nothing(tree: Tree, code: bytes, message: str) -> None:
    before = tree.files()
    with tree.start(code=code) as talk:
        error = refused(talk, make_plan(code=code), code)
        assert (error["exit"], message in error["message"]) == (3, True), error
        assert [name for name in tree.files() if name != "run/tfctl/lock"] == before
        error = refused(talk, make_plan(code=code), code)
        assert error["exit"] == 3


def test_what_is_not_what_was_announced(tree: Tree) -> None:
    with tree.start(code=GOOD) as talk:
        talk.tell("plan", make_plan(code=GOOD))
        talk.tell("code", 5)
        talk.say(b"other")
        error = talk.expect("refused")
        assert (error["exit"], "does not match its announced digest" in error["message"]) == (1, True)
        reserve(talk, make_plan(code=GOOD), GOOD)


def test_a_client_that_dies_in_the_middle_of_it(tree: Tree) -> None:
    with tree.start(code=GOOD) as talk:
        talk.tell("plan", make_plan(code=GOOD))
        talk.tell("code", len(GOOD))
        talk.say(GOOD[:50])
        assert talk.hang_up() == 1
    assert list((tree / names.CODE_STORE).iterdir()) == []
