"""The directory that `tfctl pull` writes to: which links may be made there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfctl.errors import TfctlError, UsageError
from tfctl.jobs.destination import Destination, checked, leads_inside

NAMES = st.sampled_from(["a", "b", "c"])
TARGETS = st.lists(st.sampled_from(["..", ".", "", "a", "b", "c"]), min_size=1, max_size=5).map("/".join)


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("out/link", "file", True),
        ("out/link", "../other", True),
        ("out/link", "../../other", False),
        ("link", "..", False),
        ("link", ".", True),
        ("link", "", False),
        ("out/link", "/etc", False),
        ("out/link", "inner/../../..", False),
        ("out/link", "inner/..", False),
    ],
)
def test_links_may_not_lead_out_of_the_directory(path: str, target: str, inside: bool) -> None:
    assert leads_inside(path, target) is inside


@pytest.mark.extended
@given(st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3).map("/".join), TARGETS), max_size=8))
def test_no_combination_of_links_leads_out_of_the_directory(links: list[tuple[str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, Destination(Path(folder) / "in", "digits") as destination:
        root = Path(os.path.realpath(destination.path))
        for path, target in links:
            try:
                destination.link(path, target)
            except TfctlError:
                continue
        for place, folders, files in os.walk(root):
            for name in (*folders, *files):
                try:
                    end = Path(place, name).resolve(strict=True)
                except (OSError, RuntimeError):
                    continue  # it leads nowhere, or in a circle
                assert end == root or root in end.parents


@pytest.mark.parametrize("path", ["/a", "a/../b", "..", "", "a/", "./a", "a\0b", ".tfctl-pull/lock"])
def test_paths_that_are_not_plain_are_refused(path: str) -> None:
    with pytest.raises(TfctlError, match="is not a path below the directory"):
        checked(path)


def test_a_part_is_continued_only_for_the_same_version_of_a_file(tmp_path: Path) -> None:
    with Destination(tmp_path, "digits") as destination:
        with destination.part("a/b", 6, 1) as part:
            part.write(b"one")
        with destination.part("a/b", 6, 1) as part:
            assert part.offset == 3
        with destination.part("a/b", 6, 2) as part:
            assert part.offset == 0
        with destination.part("a/b", 6, 1) as part:
            part.write(b"two")
            part.complete()
        assert destination.has("a/b", 6, 1)
        assert not destination.has("a/b", 6, 2)
        assert (tmp_path / "a/b").read_text() == "onetwo"
        destination.clean()
    assert {path.name for path in (tmp_path / ".tfctl-pull").iterdir()} == {"lock", "written"}


def content(folder: Path) -> dict[str, str]:
    """Return the text of each file that is not tfctl's own."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".tfctl-pull" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in files if path.name != ".gitignore"}


@pytest.mark.parametrize("name", ["output/model", "status.json", "events.json", "attempt-1/worker-0.log"])
def test_a_directory_with_a_name_that_no_pull_has_written_is_refused_and_stays_as_it_is(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=f"{name.partition('/')[0]} was not written by `tfctl pull digits`"):
        Destination(tmp_path, "digits")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [name]


def test_a_directory_of_another_job_is_refused(tmp_path: Path) -> None:
    with Destination(tmp_path, "digits") as destination:
        destination.write(destination.named("status.json", "11111111"), "{}")
    with pytest.raises(UsageError, match="has the results of job digits"):
        Destination(tmp_path, "letters")
    assert content(tmp_path) == {"status.json": "{}"}


def test_names_that_another_run_has_taken_are_followed_by_the_run(tmp_path: Path) -> None:
    for _ in range(2):  # the second time, they are known
        with Destination(tmp_path, "digits") as destination:
            assert destination.named("output", "11111111") == "output"
            assert destination.named("output", "22222222", {"11111111"}) == "output"
            assert destination.named("output", "33333333") == "output-33333333"
            assert destination.named("output", "44444444", {"33333333"}) == "output-33333333"
            assert destination.named("status.json", "33333333") == "status.json"
            assert destination.named("status.json", "11111111") == "status-11111111.json"
            assert destination.named("attempt-1", "33333333") == "attempt-1"
            assert destination.named("attempt-1", "11111111") == "attempt-1-11111111"
            assert destination.named("attempt-11", "22222222") == "attempt-11"


@pytest.mark.parametrize("run", ["", "../../etc", "1111111", "111111111", "ABCDEF00", "11111111\n"])
def test_a_run_that_is_not_one_becomes_no_name(run: str, tmp_path: Path) -> None:
    with Destination(tmp_path, "digits") as destination, pytest.raises(TfctlError, match="a run that is not one"):
        destination.named("output", run)


def test_a_file_that_no_pull_has_written_is_not_replaced(tmp_path: Path) -> None:
    with Destination(tmp_path, "digits") as destination:
        destination.named("output", "11111111")
        destination.write("output/ours", "one")
        (tmp_path / "output/mine").write_text("mine")
        (tmp_path / "output/link").symlink_to("mine")
        for act in (
            lambda: destination.write("output/mine", "two"),
            lambda: destination.write("output/link", "two"),
            lambda: destination.has("output/mine", 3, 1),
            lambda: destination.link("output/link", "ours"),
        ):
            with pytest.raises(TfctlError, match=r"was not written by `tfctl pull`; it was left as it is"):
                act()
        destination.link("output/link", "mine")
    with Destination(tmp_path, "digits") as destination:
        destination.write("output/ours", "two")
        assert not destination.has("output/ours", 2, 1)
    assert content(tmp_path) == {"output/ours": "two", "output/mine": "mine", "output/link": "mine"}


def test_a_list_of_what_was_written_that_was_cut_off_is_continued(tmp_path: Path) -> None:
    with Destination(tmp_path, "digits") as destination:
        destination.named("output", "11111111")
        destination.write("output/one", "1")
    written = tmp_path / ".tfctl-pull/written"
    written.write_bytes(written.read_bytes() + b'{"file": "output/tw')
    with Destination(tmp_path, "digits") as destination:
        destination.named("output", "33333333", {"11111111"})
    with Destination(tmp_path, "digits") as destination:
        assert destination.named("output", "33333333") == "output"
        assert destination.named("output", "22222222") == "output-22222222"
        destination.write("output/one", "2")
