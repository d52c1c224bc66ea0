"""The Keras callbacks that a distributed fit needs."""

import os
import sys
import warnings
from importlib.util import find_spec
from typing import Any, Dict, List, Optional

from tfctl_runtime import _task, _timings


def callbacks(
    output: Optional[str] = None, backup_steps: Optional[int] = None, batch_size: Optional[int] = None
) -> List[Any]:
    """Return callbacks for ``fit`` that let it resume after an interruption and let only one task write.

    They write below ``output``, a directory that all hosts share (default: TFCTL_OUTPUT, else ``./output``):

    * ``backup/``, BackupAndRestore: the state after each epoch, or after every ``backup_steps`` steps (Keras 2.11 or
      newer; with parameter_server only after epochs). Read when fit begins, removed when it succeeds.
    * ``checkpoints/ckpt-0001`` and so on, ModelCheckpoint: the weights after each epoch.
    * ``logs/``, TensorBoard, if that package is installed.

    The last one is that of `timings`, with ``batch_size``.

    Only the chief's files count. The other workers must take part in saving, because reading a variable may involve
    all of them; their files go to scratch_dir(). Uses the script's Keras: tf_keras if imported, else tf.keras.
    """
    where = os.fspath(output or os.environ.get("TFCTL_OUTPUT") or "output")
    keras = _keras()
    chief = _task.is_chief()
    weights = "ckpt-{epoch:04d}" if chief else "ckpt"  # non-chiefs overwrite one file, which nobody needs
    if _major(keras) >= 3:
        weights += ".weights.h5"
    own = where if chief else _task.scratch_dir()
    found = [
        # In Keras 2, the workers agree on which of them writes.
        keras.callbacks.BackupAndRestore(where + "/backup", **_how_often(backup_steps)),
        keras.callbacks.ModelCheckpoint(f"{own}/checkpoints/{weights}", save_weights_only=True),
    ]
    if chief and find_spec("tensorboard") is None:
        warnings.warn("callbacks(): no summaries, because the package tensorboard is not installed", stacklevel=2)
    elif chief:
        found.append(keras.callbacks.TensorBoard(where + "/logs"))
    return [*found, timings(batch_size)]


def timings(batch_size: Optional[int] = None) -> Any:
    """Return the callback for ``fit`` that records how fast this task trains, for `tfctl report`.

    ``batch_size``: the number of examples in each batch that the script makes; by default that of the dataset that
    shard() was given. `callbacks` has this callback; use it alone with Horovod. Outside a job it records nothing.
    """
    return _timings.callback(_keras(), batch_size)


def _how_often(steps: Optional[int]) -> Dict[str, int]:
    """Ignore steps under parameter_server: Keras does not see them there, and would save nothing at all."""
    return {} if steps is None or _task.read().strategy == "parameter_server" else {"save_freq": steps}


def _keras() -> Any:
    if "tf_keras" in sys.modules:
        return sys.modules["tf_keras"]
    import tensorflow as tf

    return tf.keras


def _major(keras: Any) -> int:
    """Return Keras's major version. The tf.keras of TensorFlow up to 2.15 has no version, and is Keras 2."""
    return int(getattr(keras, "__version__", "2").split(".")[0])
