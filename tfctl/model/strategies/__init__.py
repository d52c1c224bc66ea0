"""The ways of distributing TensorFlow, one file each. A new one is a new file and a line here."""

from __future__ import annotations

from tfctl.model.strategies import custom, parameter_server
from tfctl.model.strategies.base import Strategy

STRATEGIES: dict[str, Strategy] = {found.name: found for found in (parameter_server.STRATEGY, custom.STRATEGY)}
