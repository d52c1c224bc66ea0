"""The optimizer and the callbacks."""

from types import SimpleNamespace
from typing import Any


class DistributedOptimizer:
    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer


class BroadcastGlobalVariablesCallback:
    def __init__(self, root_rank: int) -> None:
        self.root_rank = root_rank


class MetricAverageCallback:
    pass


callbacks = SimpleNamespace(
    BroadcastGlobalVariablesCallback=BroadcastGlobalVariablesCallback, MetricAverageCallback=MetricAverageCallback
)
