"""The tasks that compute for others: a server of TensorFlow, until the job's end."""

import signal
import sys

from tfctl_runtime import _task


def serve_forever_if_needed() -> None:
    """Serve in the ps and worker tasks of parameter_server (in the ps tasks of tf1_ps and estimator), until SIGTERM or
    Ctrl-C ends the process; return at once elsewhere. Call it before anything else of TensorFlow."""
    task = _task.read()
    if not task.serves:
        return
    import tensorflow as tf

    # TensorFlow 1 has it under train alone.
    where = tf.distribute if hasattr(tf.distribute, "Server") else tf.train
    server = where.Server(tf.train.ClusterSpec(task.cluster), job_name=task.role, task_index=task.index)
    # While join waits, in C++, Python would hear no Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    print(f"{task} serves at {server.target}", file=sys.stderr, flush=True)
    server.join()
    sys.exit(0)
