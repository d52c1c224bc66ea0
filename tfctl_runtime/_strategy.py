"""The strategy of this process's job."""

from typing import Any, Callable, List, Optional, Tuple

from tfctl_runtime import _task

#: The arguments of the first call and what it made: TensorFlow takes a second multi-worker strategy for a fault.
_made: List[Tuple[Tuple[str, Any], Any]] = []


def strategy(communication: str = "auto", variable_partitioner: Optional[Callable[..., Any]] = None) -> Any:
    """The tf.distribute.Strategy for this task, the same one at every call. Call it before anything else of TensorFlow.

    By the job's ``strategy:``; outside a job, and for ``custom``, by the shape of TF_CONFIG. multi_worker_mirrored:
    ``communication`` is auto, ring or nccl. parameter_server: on the chief, with ``variable_partitioner`` (one of
    tf.distribute.experimental.partitioners). An evaluator has the default strategy, and so has a local run on a machine
    with one GPU or none; with several it is MirroredStrategy.

    Raises ValueError for other arguments than those of the first call; RuntimeError where the job has no such strategy,
    or TensorFlow is older than 2.4.
    """
    asked = (communication, variable_partitioner)
    if not _made:
        _made.append((asked, _make(_task.read(), communication, variable_partitioner)))
    elif _made[0][0] != asked:
        raise ValueError("strategy() was called before with other arguments: call it once, and keep what it gives")
    return _made[0][1]


def _make(task: _task.Task, communication: str, partitioner: Optional[Callable[..., Any]]) -> Any:
    if task.serves:
        raise RuntimeError(f"strategy(): {task} serves the chief; call serve_forever_if_needed() before it")
    import tensorflow as tf

    if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 4):
        raise RuntimeError(f"strategy(): TensorFlow is {tf.__version__}; 2.4 is the first that will do")
    gpus = tf.config.get_visible_devices("GPU")
    if task.role == "evaluator" or (task.strategy == "local" and len(gpus) < 2):
        return tf.distribute.get_strategy()
    if task.strategy == "multi_worker_mirrored":
        return _multi_worker(tf, communication)
    if task.strategy == "parameter_server":
        # It left `experimental` in 2.6.
        where = tf.distribute if hasattr(tf.distribute, "ParameterServerStrategy") else tf.distribute.experimental
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return where.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    if task.strategy in ("mirrored", "local"):
        # Without a GPU over every logical CPU, so that a script tries several replicas anywhere.
        cpus = [device.name for device in tf.config.list_logical_devices("CPU")] if not gpus else None
        return tf.distribute.MirroredStrategy(cpus)
    raise RuntimeError(f"strategy(): {task.strategy} is a way of its own, without a tf.distribute.Strategy")


def _multi_worker(tf: Any, communication: str) -> Any:
    kinds = tf.distribute.experimental.CommunicationImplementation
    if communication not in ("auto", "ring", "nccl"):
        raise ValueError(f"strategy(): communication is auto, ring or nccl, not {communication!r}")
    options = tf.distribute.experimental.CommunicationOptions(implementation=getattr(kinds, communication.upper()))
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
