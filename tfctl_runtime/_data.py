"""A dataset, shared out among the workers."""

import warnings
from typing import Any, Iterator, Optional

from tfctl_runtime import _task

#: By their names in tf.data.experimental.AutoShardPolicy.
POLICIES = ("auto", "file", "data", "off")


def shard(dataset: Any, policy: str = "auto") -> Any:
    """The tf.data.Dataset of which each worker of multi_worker_mirrored takes its share; elsewhere it is unchanged.

    ``policy`` is TensorFlow's AutoShardPolicy. ``file``: each worker reads files of its own; ``data``: each reads all
    of it and keeps every n-th element; ``off``: each has all of it; ``auto``: ``file`` where files are read, else
    ``data``. Batches are of the global size, which TensorFlow divides by the workers.

    Warns where there are fewer files than workers. Raises ValueError for a ``policy`` that does not exist.
    """
    if policy not in POLICIES:
        raise ValueError("shard(): policy is one of {}, not {!r}".format(", ".join(POLICIES), policy))
    task = _task.read()
    if task.strategy != "multi_worker_mirrored" or task.role == "evaluator":
        return dataset
    import tensorflow as tf

    files = _files(dataset) if policy in ("auto", "file") else None
    # TensorFlow then fails on some workers and gives the others nothing. Told once in a job.
    if task.chief and files is not None and files < task.workers:
        warnings.warn(
            f"shard(): {files} files for {task.workers} workers, and each must have one of its own: write the data in "
            'more files, or shard(dataset, policy="data")',
            stacklevel=2,
        )
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(tf.data.experimental.AutoShardPolicy, policy.upper())
    return dataset.with_options(options)


def _files(dataset: Any) -> Optional[int]:
    """The fewest files that a source of the dataset reads; None when it reads none, or that cannot be seen."""
    try:
        counts = [int(source.cardinality()) for source in _sources(dataset) if _is_text(source.element_spec)]
    except AttributeError:  # these are TensorFlow's own names, as of 2.4 to 2.21
        return None
    # Endless and unknown are below zero.
    return min((count for count in counts if count >= 0), default=None)


def _sources(dataset: Any) -> Iterator[Any]:
    """Where it begins. Scalar strings there are names of files, to TensorFlow too."""
    inputs = dataset._inputs()
    if not inputs and hasattr(dataset, "_filenames"):  # TextLineDataset keeps its names to itself
        inputs = [dataset._filenames]
    if not inputs:
        yield dataset
    for each in inputs:
        yield from _sources(each)


def _is_text(spec: Any) -> bool:
    shape, kind = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    return shape is not None and shape.rank == 0 and getattr(kind, "name", "") == "string"
