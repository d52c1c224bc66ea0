"""The ways of distributing TensorFlow, one file each. To add one, add a file and a line here."""

from __future__ import annotations

from tfctl.model.strategies import (
    custom,
    estimator,
    horovod,
    mirrored,
    multi_worker_mirrored,
    parameter_server,
    tf1_ps,
)
from tfctl.model.strategies.base import Strategy

STRATEGIES: dict[str, Strategy] = {
    found.STRATEGY.name: found.STRATEGY
    for found in (tf1_ps, estimator, parameter_server, multi_worker_mirrored, mirrored, horovod, custom)
}
