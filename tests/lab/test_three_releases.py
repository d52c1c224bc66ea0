"""Three releases of Debian get their stacks in one run, from empty caches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.lab.test_provision import edited

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

#: The stack and the Python of each node, in the order of the suites.
STACKS = {"node1": ("tf2.15", "3.9"), "node2": ("tf2.15", "3.11"), "node3": ("tf2.21", "3.13")}


@pytest.fixture(scope="module")
def releases(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three bare nodes. Their images may be cached: these contain no wheels."""
    found = Lab(f"{run_name}-three", tmp_path_factory.mktemp("releases"))
    found.up("--nodes", 3, "--suite", "bullseye,bookworm,trixie")
    try:
        yield found
    finally:
        found.down()


def test_three_releases_get_their_stacks_from_empty_caches(
    releases: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tfctl, pip and uv have their caches below XDG_CACHE_HOME."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = {node: f"tfctl_stack={stack}" for node, (stack, _) in STACKS.items()}
    command = ("provision", edited(releases, releases.folder, **settings), "-o", "json")
    for node in STACKS:
        assert releases.shell(node, "ls /var/cache/tfctl/wheels 2>/dev/null || true") == ""
    report = json.loads(releases.tfctl(*command, check=False, timeout=2000).stdout)
    assert (report["exit"], report["changed"] > 0) == (0, True), [host["reason"] for host in report["hosts"]]
    assert [*(tmp_path / "tfctl/wheels").iterdir()] != [], "the wheels were in another cache"
    for node, (stack, python) in STACKS.items():
        expected_state.tensorflow(releases.testinfra(node), stack, python)
        program = "import tensorflow; print(tensorflow.__version__)"
        version = releases.shell(node, f"/opt/tfctl/stacks/{stack}/bin/python -c '{program}' 2>/dev/null", timeout=120)
        assert version.startswith(stack.removeprefix("tf"))
    assert json.loads(releases.tfctl(*command, timeout=300).stdout)["changed"] == 0
