"""Run a TensorFlow server, in tasks that compute or hold variables for others, until the job ends."""

import signal
import sys

from tfctl_runtime import _task


def serve_forever_if_needed() -> None:
    """Serve until SIGTERM or Ctrl-C ends the process, in the ps and worker tasks of parameter_server and the ps tasks
    of tf1_ps and estimator. Return at once in all others. Call this before using anything else in TensorFlow."""
    task = _task.read()
    if not task.serves:
        return
    import tensorflow as tf

    # TensorFlow 1 has Server only in tf.train.
    where = tf.distribute if hasattr(tf.distribute, "Server") else tf.train
    server = where.Server(tf.train.ClusterSpec(task.cluster), job_name=task.role, task_index=task.index)
    # join waits in C++, where Python's own handler would not see Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print(f"{task} serves at {server.target}", file=sys.stderr, flush=True)
    server.join()
    sys.exit(0)
