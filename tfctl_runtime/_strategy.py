"""The strategy of this process's job."""

from typing import Any, Callable, List, Optional, Tuple

from tfctl_runtime import _ranks, _task

#: The first call's arguments and result: TensorFlow does not allow a second multi-worker strategy.
_made: List[Tuple[Tuple[str, Any], Any]] = []


def strategy(communication: str = "auto", variable_partitioner: Optional[Callable[..., Any]] = None) -> Any:
    """Return the tf.distribute.Strategy for this task, the same one every time. Call before anything in TensorFlow.

    It follows the job's ``strategy:``; outside a job, and for ``custom``, the shape of TF_CONFIG. For
    multi_worker_mirrored, ``communication`` is auto, ring or nccl. For parameter_server, call it on the chief;
    ``variable_partitioner`` is one of tf.distribute.experimental.partitioners. An evaluator gets the default strategy,
    as do a rank of horovod, which is connected to the others first, and a local run with at most one GPU. A local run
    with several GPUs gets MirroredStrategy.

    Raise ValueError if the arguments differ from the first call's, RuntimeError if the job's strategy has no
    tf.distribute.Strategy or TensorFlow is older than 2.4.
    """
    asked = (communication, variable_partitioner)
    if not _made:
        _made.append((asked, _make(_task.read(), communication, variable_partitioner)))
    elif _made[0][0] != asked:
        raise ValueError("strategy() was called before with other arguments: call it once, and keep the result")
    return _made[0][1]


def replicas() -> int:
    """Return how many copies of the model take each step together: the factor from a replica's batch to the global one.

    Under parameter_server, whose workers do not wait for each other, these are the copies of one worker.
    """
    if _task.read().strategy == "horovod":
        return int(_ranks.horovod().size())
    return int(strategy().num_replicas_in_sync)


def optimizer(optimizer: Any) -> Any:
    """Return the Keras optimizer; under horovod, one that averages the gradients of all ranks. Use it in ``compile``.

    The result under horovod is a new optimizer of the same configuration, so change settings that are not arguments,
    such as exclude_from_weight_decay, on the result.
    """
    if _task.read().strategy != "horovod":
        return optimizer
    _ranks.horovod()
    import horovod.tensorflow.keras as hvd

    return hvd.DistributedOptimizer(optimizer)


def _make(task: _task.Task, communication: str, partitioner: Optional[Callable[..., Any]]) -> Any:
    if task.serves:
        raise RuntimeError(f"strategy(): {task} serves the chief; call serve_forever_if_needed() before it")
    import tensorflow as tf

    if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 4):
        raise RuntimeError(f"strategy(): TensorFlow is {tf.__version__}; 2.4 or newer is needed")
    if task.strategy == "horovod":
        _ranks.horovod()
        return tf.distribute.get_strategy()
    gpus = tf.config.get_visible_devices("GPU")
    if task.role == "evaluator" or (task.strategy == "local" and len(gpus) < 2):
        return tf.distribute.get_strategy()
    if task.strategy == "multi_worker_mirrored":
        return _multi_worker(tf, communication)
    if task.strategy == "parameter_server":
        # It moved out of `experimental` in 2.6.
        where = tf.distribute if hasattr(tf.distribute, "ParameterServerStrategy") else tf.distribute.experimental
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return where.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    if task.strategy in ("mirrored", "local"):
        # Without a GPU, use every logical CPU, so that a script can try several replicas anywhere.
        cpus = [device.name for device in tf.config.list_logical_devices("CPU")] if not gpus else None
        return tf.distribute.MirroredStrategy(cpus)
    raise RuntimeError(f"strategy(): {task.strategy} has no tf.distribute.Strategy")


def _multi_worker(tf: Any, communication: str) -> Any:
    kinds = tf.distribute.experimental.CommunicationImplementation
    if communication not in ("auto", "ring", "nccl"):
        raise ValueError(f"strategy(): communication is auto, ring or nccl, not {communication!r}")
    options = tf.distribute.experimental.CommunicationOptions(implementation=getattr(kinds, communication.upper()))
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
