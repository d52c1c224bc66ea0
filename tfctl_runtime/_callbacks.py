"""The Keras callbacks that a distributed fit needs."""

import os
import sys
import warnings
from importlib.util import find_spec
from typing import Any, Dict, List, Optional

from tfctl_runtime import _task


def callbacks(output: Optional[str] = None, backup_steps: Optional[int] = None) -> List[Any]:
    """Callbacks for ``fit``, so that an interrupted one goes on where it was, and one task alone writes.

    Below ``output``, a directory that all hosts share (default: TFCTL_OUTPUT, else ``./output``):

    * ``backup/``, BackupAndRestore: the state after each epoch, or after every ``backup_steps`` steps (Keras from 2.11
      on; parameter_server has its epochs alone), read when fit begins, gone when it ends well.
    * ``checkpoints/ckpt-0001`` and so on, ModelCheckpoint: the weights after each epoch.
    * ``logs/``, TensorBoard, where that package is there.

    The chief writes. The other workers must take part in saving, since reading a variable may take all of them: theirs
    goes to scratch_dir(). They are of the Keras that the script uses: tf_keras where it is imported, else tf.keras.
    """
    where = os.fspath(output or os.environ.get("TFCTL_OUTPUT") or "output")
    keras = _keras()
    chief = _task.is_chief()
    weights = "ckpt-{epoch:04d}" if chief else "ckpt"  # over the same file: nobody needs these
    if _major(keras) >= 3:
        weights += ".weights.h5"
    own = where if chief else _task.scratch_dir()
    found = [
        # Keras 2 has its workers agree on who writes.
        keras.callbacks.BackupAndRestore(where + "/backup", **_how_often(backup_steps)),
        keras.callbacks.ModelCheckpoint(f"{own}/checkpoints/{weights}", save_weights_only=True),
    ]
    if chief and find_spec("tensorboard") is None:
        warnings.warn("callbacks(): no summaries, since the package tensorboard is not installed", stacklevel=2)
    elif chief:
        found.append(keras.callbacks.TensorBoard(where + "/logs"))
    return found


def _how_often(steps: Optional[int]) -> Dict[str, int]:
    """Under parameter_server Keras knows of no step, and asked for them would save nothing at all."""
    return {} if steps is None or _task.read().strategy == "parameter_server" else {"save_freq": steps}


def _keras() -> Any:
    if "tf_keras" in sys.modules:
        return sys.modules["tf_keras"]
    import tensorflow as tf

    return tf.keras


def _major(keras: Any) -> int:
    """The tf.keras of TensorFlow up to 2.15 does not tell its version."""
    return int(getattr(keras, "__version__", "2").split(".")[0])
