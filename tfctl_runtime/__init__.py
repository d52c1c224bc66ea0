"""Helpers for training scripts, so that the same script runs on one machine and on many.

    import tfctl_runtime as runtime

    runtime.serve_forever_if_needed()
    with runtime.strategy().scope():
        model = ...
    model.fit(runtime.shard(dataset), callbacks=runtime.callbacks())

It reads the task's environment as set by tfctl: TF_CONFIG and variables that begin with TFCTL_. Without them, the
script runs as an ordinary local program. The package needs only the standard library (Python 3.6 or newer) until a
function needs TensorFlow, and creates no TensorFlow operation before there is a strategy.

Every function raises ValueError with a one-sentence message if the environment contradicts itself.
"""

from tfctl_runtime._callbacks import callbacks, timings
from tfctl_runtime._data import dataset, shard
from tfctl_runtime._serve import serve_forever_if_needed
from tfctl_runtime._strategy import optimizer, replicas, strategy
from tfctl_runtime._task import is_chief, scratch_dir

__all__ = [
    "callbacks",
    "dataset",
    "is_chief",
    "optimizer",
    "replicas",
    "scratch_dir",
    "serve_forever_if_needed",
    "shard",
    "strategy",
    "timings",
]
