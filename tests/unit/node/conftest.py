from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from node_tree import Tree

settings.register_profile("node", deadline=None, derandomize=True)
settings.load_profile("node")


@pytest.fixture
def tree() -> Iterator[Tree]:
    with Tree() as found:
        yield found
