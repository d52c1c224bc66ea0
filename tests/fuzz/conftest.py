from __future__ import annotations

from tests.unit.node.conftest import tree as tree
