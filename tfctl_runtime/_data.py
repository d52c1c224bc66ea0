"""Share a dataset among the workers."""

import warnings
from typing import Any, Iterator, Optional

from tfctl_runtime import _task, _timings

#: The names in tf.data.experimental.AutoShardPolicy.
POLICIES = ("auto", "file", "data", "off")


def shard(dataset: Any, policy: str = "auto") -> Any:
    """Return the tf.data.Dataset, set up so that each worker of multi_worker_mirrored takes its share of it.

    Under other strategies it is returned unchanged. ``policy`` is TensorFlow's AutoShardPolicy. ``file``: each worker
    reads its own files; ``data``: each reads everything and keeps every n-th element; ``off``: each keeps everything;
    ``auto``: ``file`` if it reads files, else ``data``. Batches have the global size; TensorFlow divides it.

    Warn if there are fewer files than workers. Raise ValueError for an unknown ``policy``.
    """
    if policy not in POLICIES:
        raise ValueError("shard(): policy is one of {}, not {!r}".format(", ".join(POLICIES), policy))
    task = _task.read()
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
