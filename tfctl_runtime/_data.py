"""Share a dataset among the workers."""

import warnings
from typing import Any, Callable, Iterator, Optional

from tfctl_runtime import _ranks, _strategy, _task, _timings

#: The names in tf.data.experimental.AutoShardPolicy.
POLICIES = ("auto", "file", "data", "off")


def dataset(make: Callable[[Any], Any]) -> Any:
    """Return the dataset for ``fit`` or ``evaluate``. Each worker calls ``make`` with its tf.distribute.InputContext.

    ``make`` returns the share ``context.input_pipeline_id`` of ``context.num_input_pipelines``, and batches of
    ``context.get_per_replica_batch_size(size)`` for a global batch of ``size``. Under parameter_server there is one
    share: each worker draws from all data, so shuffle without a seed. Under mirrored and multi_worker_mirrored, ``fit``
    needs ``steps_per_epoch`` or ``validation_steps``.
    """
    task = _task.read()
    import tensorflow as tf

    def watched(context: Any) -> Any:
        return _timings.watch(make(context), context)

    if task.strategy == "horovod":
        hvd = _ranks.horovod()
        return watched(tf.distribute.InputContext(hvd.size(), hvd.rank(), hvd.size()))
    if task.strategy == "parameter_server":  # fit copies the dataset to each worker
        return watched(tf.distribute.InputContext())
    return _strategy.strategy().distribute_datasets_from_function(watched)


def shard(dataset: Any, policy: str = "auto") -> Any:
    """Return the tf.data.Dataset, set up so that each worker of multi_worker_mirrored or horovod takes its share of it.

    Under other strategies it is returned unchanged. ``policy`` is TensorFlow's AutoShardPolicy. ``file``: each worker
    reads its own files; ``data``: each reads everything and keeps every n-th element; ``off``: each keeps everything;
    ``auto``: ``file`` if it reads files, else ``data``. Batches have the global size; TensorFlow divides it.

    Under horovod, ``auto`` means ``data``, and a batch goes to one rank. Warn if there are fewer files than workers.
    Raise ValueError for an unknown ``policy``, and under horovod for ``file``.
    """
    if policy not in POLICIES:
        raise ValueError("shard(): policy is one of {}, not {!r}".format(", ".join(POLICIES), policy))
    task = _task.read()
    if task.strategy == "horovod":
        return _timings.watch(_share_of_rank(dataset, policy))
    dataset = _timings.watch(dataset)
    if task.strategy != "multi_worker_mirrored" or task.role == "evaluator":
        return dataset
    import tensorflow as tf

    files = _files(dataset) if policy in ("auto", "file") else None
    # TensorFlow would fail on some workers and give others no data. Warn once per job.
    if task.chief and files is not None and files < task.workers:
        warnings.warn(
            f"shard(): {files} files for {task.workers} workers, but each needs its own: write the data in more files, "
            'or use shard(dataset, policy="data")',
            stacklevel=2,
        )
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(tf.data.experimental.AutoShardPolicy, policy.upper())
    return dataset.with_options(options)


def _share_of_rank(dataset: Any, policy: str) -> Any:
    if policy == "file":
        raise ValueError("shard(): Horovod has no policy 'file': use tfctl_runtime.dataset, and shard the file names")
    hvd = _ranks.horovod()
    return dataset if policy == "off" else dataset.shard(hvd.size(), hvd.rank())


def _files(dataset: Any) -> Optional[int]:
    """Return the fewest files that any source of the dataset reads; None if it reads none or this is unknown."""
    try:
        counts = [int(source.cardinality()) for source in _sources(dataset) if _is_text(source.element_spec)]
    except AttributeError:  # these are private names of TensorFlow 2.4 to 2.21
        return None
    # Infinite and unknown cardinalities are negative.
    return min((count for count in counts if count >= 0), default=None)


def _sources(dataset: Any) -> Iterator[Any]:
    """Yield the dataset's sources. TensorFlow, too, takes scalar strings there for file names."""
    inputs = dataset._inputs()
    if not inputs and hasattr(dataset, "_filenames"):  # TextLineDataset does not list its file names as inputs
        inputs = [dataset._filenames]
    if not inputs:
        yield dataset
    for each in inputs:
        yield from _sources(each)


def _is_text(spec: Any) -> bool:
    shape, kind = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    return shape is not None and shape.rank == 0 and getattr(kind, "name", "") == "string"
