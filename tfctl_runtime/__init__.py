"""What a training script may import, so that the same script runs on one machine and on many.

    import tfctl_runtime as runtime

    runtime.serve_forever_if_needed()
    with runtime.strategy().scope():
        model = ...
    model.fit(runtime.shard(dataset), callbacks=runtime.callbacks())

It reads what tfctl has put into the task's environment: TFCTL_STRATEGY, TF_CONFIG, TFCTL_OUTPUT. Without these it is an
ordinary local run. It needs the standard library alone (Python 3.6 and newer) until a function asks for TensorFlow, and
makes no operation of TensorFlow before there is a strategy.

Every function raises ValueError, in one sentence, when the environment contradicts itself.
"""

from tfctl_runtime._callbacks import callbacks
from tfctl_runtime._data import shard
from tfctl_runtime._serve import serve_forever_if_needed
from tfctl_runtime._strategy import strategy
from tfctl_runtime._task import is_chief, scratch_dir

__all__ = ["callbacks", "is_chief", "scratch_dir", "serve_forever_if_needed", "shard", "strategy"]
