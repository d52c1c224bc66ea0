"""The Keras callbacks that a distributed fit needs."""

import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Dict, List, Optional

from tfctl_runtime import _ranks, _task, _timings


def callbacks(
    output: Optional[str] = None, backup_steps: Optional[int] = None, batch_size: Optional[int] = None
) -> List[Any]:
    """Return callbacks for ``fit`` that let it resume after an interruption and let only one task write.

    They write below ``output``, a directory that all hosts share (default: TFCTL_OUTPUT, else ``./output``):

    * ``backup/``, BackupAndRestore: the state after each epoch, or after every ``backup_steps`` steps (Keras 2.11 or
      newer; with parameter_server only after epochs). Read when fit begins, removed when it succeeds. A task that is
      interrupted after the backup of an epoch's last step resumes with the next epoch: the evaluation and the weights
      of that epoch may be missing.
    * ``checkpoints/ckpt-0001`` and so on, ModelCheckpoint: the weights after each epoch.
    * ``logs/``, TensorBoard, if that package is installed.

    The last one is that of `timings`, with ``batch_size``.

    Only the chief's files count. The other workers must take part in saving, because reading a variable may involve
    all of them; their files go to scratch_dir(). Under horovod, call it in every rank: rank 0 sends its backup to the
    others, and all report the means of their metrics. Uses the script's Keras: tf_keras if imported, else tf.keras.
    """
    if not output and "TFCTL_JOB" in os.environ and "TFCTL_OUTPUT" not in os.environ:
        raise ValueError('the job file has `output: none`: pass the place, as in callbacks(output="gs://bucket/run")')
    where = os.fspath(output or os.environ.get("TFCTL_OUTPUT") or "output")
    keras = _keras()
    chief = _task.is_chief()
    weights = "ckpt-{epoch:04d}" if chief else "ckpt"  # non-chiefs overwrite one file, which nobody needs
    if _major(keras) >= 3:
        weights += ".weights.h5"
    own = where if chief else _task.scratch_dir()
    ranks = _task.read().strategy == "horovod"
    found = _of_ranks(own + "/backup") if ranks else []
    # In Keras 2, the workers of a strategy agree on which of them writes.
    backup = (own if ranks else where) + "/backup"
    found.append(keras.callbacks.BackupAndRestore(backup, **_how_often(backup_steps)))
    if chief or not ranks:
        found.append(keras.callbacks.ModelCheckpoint(f"{own}/checkpoints/{weights}", save_weights_only=True))
    if chief and find_spec("tensorboard") is None:
        warnings.warn("callbacks(): no summaries, because the package tensorboard is not installed", stacklevel=2)
    elif chief:
        found.append(keras.callbacks.TensorBoard(where + "/logs"))
    return [*found, timings(batch_size)]


def timings(batch_size: Optional[int] = None) -> Any:
    """Return the callback for ``fit`` that records how fast this task trains, for `tfctl report`.

    ``batch_size``: the number of examples in each batch that the script makes; by default that of the dataset that
    shard() or dataset() has returned. With dataset(), each replica takes such a batch in each step. `callbacks` has
    this callback. Outside a job it records nothing.
    """
    return _timings.callback(_keras(), batch_size)


def _of_ranks(backup: str) -> List[Any]:
    """Return Horovod's own callbacks, which come before those that write. All ranks then have rank 0's backup."""
    import horovod.tensorflow.keras as hvd

    _send_backup(backup)
    return [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]


def _send_backup(folder: str) -> None:
    """Copy rank 0's backup to the other ranks, whose hosts may not share its directory, so that all resume alike."""
    hvd = _ranks.horovod()
    files = _files_below(folder) if hvd.rank() == 0 else {}
    for name, content in hvd.broadcast_object(files, root_rank=0).items():
        if hvd.rank() != 0:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _files_below(folder: str) -> Dict[str, bytes]:
    """Return the contents of all files below a directory, by their paths within it.

    As for Keras, which writes backups, the directory may be one such as gs://bucket/backup.
    """
    import tensorflow as tf

    found: Dict[str, bytes] = {}
    for place, _, names in tf.io.gfile.walk(folder):
        for name in names:
            path = f"{place.rstrip('/')}/{name}"  # names of directories in cloud storage end in /
            with tf.io.gfile.GFile(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


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
