"""The ways of distributing TensorFlow, one file each. To add one, add a file with a ``STRATEGY``."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tfctl.model.strategies.base import Strategy

_modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
_found: list[Strategy] = [module.STRATEGY for module in _modules if hasattr(module, "STRATEGY")]

#: Every strategy by its name in job files, in alphabetical order.
STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in _found}
