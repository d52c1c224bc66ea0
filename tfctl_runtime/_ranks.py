"""Horovod, in the ranks of a horovod job."""

from typing import Any, List

#: horovod.tensorflow, once a rank has been initialized.
_made: List[Any] = []


def horovod() -> Any:
    """Return horovod.tensorflow. The first call connects this rank to the others and gives it one of the visible GPUs.

    Raise ImportError if the environment has no Horovod.
    """
    if not _made:
        import horovod.tensorflow as hvd
        import tensorflow as tf

        hvd.init()
        gpus = tf.config.list_physical_devices("GPU")
        if gpus:
            tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
        _made.append(hvd)
    return _made[0]
