from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_tree import Tree


@pytest.fixture
def tree() -> Iterator[Tree]:
    with Tree() as found:
        yield found
