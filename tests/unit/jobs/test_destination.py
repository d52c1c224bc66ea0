"""The directory that `tfctl pull` writes to: which links may be made there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfctl.errors import TfctlError
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

    with tempfile.TemporaryDirectory() as folder, Destination(Path(folder) / "in") as destination:
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
    with Destination(tmp_path) as destination:
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
    assert [path.name for path in (tmp_path / ".tfctl-pull").iterdir()] == ["lock"]
