"""Check whether a strategy and a stack go together. A stack that tfctl does not know is not checked."""

from __future__ import annotations

from collections.abc import Mapping

from tfctl.errors import BadFile
from tfctl.model.stacks import Stack
from tfctl.model.strategies.base import Strategy

_LEGACY = {"TF_USE_LEGACY_KERAS": "1"}


def check(strategy: Strategy, stack: str, known: Mapping[str, Stack]) -> None:
    """Raise BadFile if the stack lacks what the strategy needs."""
    found = known.get(stack)
    if found and strategy.horovod and not _has_horovod(found):
        fitting = [name for name, other in known.items() if _has_horovod(other)]
        raise BadFile(
            f"stack {stack} has no Horovod for its TensorFlow {found.tensorflow}",
            f"take one of {', '.join(fitting)}, or the strategy multi_worker_mirrored",
        )
    if found and _numbers(found.tensorflow) < strategy.since:
        fitting = [name for name, other in known.items() if _numbers(other.tensorflow) >= strategy.since]
        came = ".".join(map(str, strategy.since))
        raise BadFile(
            f"stack {stack} has TensorFlow {found.tensorflow}, and the strategy came with {came}",
            f"take one of {', '.join(fitting)}, or tf1_ps for a TensorFlow 1 program",
        )
    if found and strategy.estimator and not _has_estimator(found):
        fitting = [name for name, other in known.items() if _has_estimator(other)]
        raise BadFile(
            f"stack {stack} has TensorFlow {found.tensorflow}, but tf.estimator was removed in 2.16",
            f"take one of {', '.join(fitting)}",
        )


def switches(strategy: Strategy, stack: str, known: Mapping[str, Stack]) -> dict[str, str]:
    """Return the variables that let the strategy run on the stack.

    Keras 3 fails in a `fit` with several workers, so the stack's Keras 2 is used instead. Where tf_keras is missing,
    as on TensorFlow 2.15, the switch would break tf.keras.
    """
    found = known.get(stack)
    return _LEGACY if found and strategy.legacy_keras and _has_both_keras(found) else {}


def doubt(strategy: Strategy, stack: str, known: Mapping[str, Stack]) -> str:
    """Return a warning if the stack has only Keras 3, whose `fit` would fail; a custom training loop would not."""
    found = known.get(stack)
    if not found or not strategy.legacy_keras or not _has_keras_3(found) or _has_both_keras(found):
        return ""
    return (
        f"`fit` under {strategy.name} needs Keras 2, but stack {stack} has only Keras 3: install tf-keras there, or "
        "use a custom training loop"
    )


def _has_horovod(stack: Stack) -> bool:
    return stack.horovod is not None or "horovod" in stack.imports


def _has_estimator(stack: Stack) -> bool:
    return _numbers(stack.tensorflow) < (2, 16)


def _has_both_keras(stack: Stack) -> bool:
    return "tf_keras" in stack.imports and _has_keras_3(stack)


def _has_keras_3(stack: Stack) -> bool:
    return _numbers(stack.imports.get("keras", "0")) >= (3,)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
