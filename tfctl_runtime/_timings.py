"""Record how fast a task trains: steps, examples, seconds, the first step and the wait for input, as JSON lines.

A line has the totals since `fit` began, so the last one says everything:

    {"time": 1764000123.4, "began": 1764000100.0, "steps": 400, "examples": 12800, "seconds": 23.4,
     "first_step": 6.1, "first_steps": 1, "input_wait": 0.8}

``time`` and ``began`` are in epoch seconds, the rest in seconds since ``began``. ``first_step`` is the time until the
first ``first_steps`` steps were done, which includes the compilation. ``input_wait`` is the time that steps have waited
for their batch. Unknown values are null. Lines become rarer while the task runs, so that the file stays small.
"""

import collections
import contextlib
import json
import os
import time
from typing import Any, Callable, Deque, Optional

from tfctl_runtime import _task

#: Where tfctl keeps the directories of tasks (tfctl.node.names.JOBS).
_JOBS = "/var/lib/tfctl/jobs"
_NAME = "timings.jsonl"
#: The first lines are this far apart (s), later ones by this part of the time since `fit` began.
_EVERY_S, _EVERY_PART = 1.0, 0.02

#: What shard() was given last: the number of examples in its batches, if that is known, and whether it counts arrivals.
batch_size: Optional[int] = None
#: When each batch that no step has used yet left the dataset of shard(); None if the dataset does not say.
arrivals: Optional[Deque[float]] = None


class Timings:
    """The totals of one `fit`. ``examples``: in each step, if known. ``write``: takes a line."""

    def __init__(
        self, examples: Optional[int], write: Callable[[str], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._examples, self._write, self._clock = examples, write, clock
        self._began, self._began_at = clock(), time.time()
        self._steps = self._first_steps = 0
        self._first: Optional[float] = None
        self._wait: Optional[float] = 0.0
        self._due = self._began

    def stepped(self, steps: int, wait: Optional[float] = None) -> None:
        """Count steps that have just ended. ``wait``: how long (s) they have waited for their batches."""
        now = self._clock()
        self._steps += steps
        if self._first is None:
            # The first step waits for the compilation, too.
            self._first, self._first_steps = now - self._began, steps
        elif self._wait is not None:
            self._wait = None if wait is None else self._wait + wait
        if now >= self._due:
            self._say(now)

    def counted(self, steps: int) -> None:
        """Count steps of which only their number is known, and not when the first one ended."""
        self._steps += steps
        self._wait = None
        self._say(self._clock())

    def end(self) -> None:
        """Write the last line."""
        if self._steps:
            self._say(self._clock())

    def _say(self, now: float) -> None:
        seconds = now - self._began
        self._due = now + max(_EVERY_S, _EVERY_PART * seconds)
        line = {
            "time": round(time.time(), 3),
            "began": round(self._began_at, 3),
            "steps": self._steps,
            "examples": None if self._examples is None else self._steps * self._examples,
            "seconds": round(seconds, 4),
            "first_step": None if self._first is None else round(self._first, 4),
            "first_steps": self._first_steps,
            "input_wait": None if self._wait is None else round(self._wait, 4),
        }
        self._write(json.dumps(line) + "\n")


def path() -> Optional[str]:
    """Return the file in this task's directory, or None outside a job on a host."""
    found = [os.environ.get("TFCTL_" + name) for name in ("JOB", "ATTEMPT", "ROLE", "INDEX")]
    if None in found:
        return None
    job, attempt, role, index = found
    folder = f"{_JOBS}/{job}/{attempt}/{role}-{index}"
    return f"{folder}/{_NAME}" if os.access(folder, os.W_OK) else None


def callback(keras: Any, examples: Optional[int]) -> Any:
    """Return the Keras callback that writes the file, or one that does nothing if there is none.

    ``examples``: in each batch that the script makes; by default, what shard() has seen.
    """
    task = _task.read()

    class EpochTimings(keras.callbacks.Callback):  # type: ignore[misc]
        """Counts whole epochs. Under parameter_server, Keras accepts no callback with methods for batches, because it
        only schedules steps, and waits for them at the end of an epoch."""

        def __init__(self) -> None:
            super().__init__()
            self._timings: Optional[Timings] = None
            self._file: Optional[int] = None

        def on_train_begin(self, *_: Any) -> None:
            where = path()
            if where is None:
                return
            try:
                self._file = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except OSError:
                return
            self._timings = Timings(_share(batch_size if examples is None else examples, task), self._put)
            if arrivals is not None:
                arrivals.clear()

        def on_epoch_end(self, *_: Any) -> None:
            steps = self.params.get("steps")
            if self._timings is not None and steps:
                self._timings.counted(steps)

        def on_train_end(self, *_: Any) -> None:
            if self._timings is not None:
                self._timings.end()
            if self._file is not None:
                os.close(self._file)
                self._file = None

        def _put(self, line: str) -> None:
            # A full disk does not end the training.
            with contextlib.suppress(OSError):
                if self._file is not None:
                    os.write(self._file, line.encode())

    class StepTimings(EpochTimings):
        def __init__(self) -> None:
            super().__init__()
            # Keras 2 then passes the logs as they are, and does not wait for their values after each step.
            self._supports_tf_logs = True
            self._begun = (0, 0.0)

        def on_train_batch_begin(self, batch: int, *_: Any) -> None:
            self._begun = (batch, time.monotonic())

        def on_train_batch_end(self, batch: int, *_: Any) -> None:
            if self._timings is None:
                return
            # Keras 2 gives the number of the last step that it has executed at once, Keras 3 that of the first.
            each = getattr(self.model, "steps_per_execution", 1)
            steps = max(1, batch - self._begun[0] + 1, each if isinstance(each, int) else 1)
            self._timings.stepped(steps, _wait(self._begun[1], steps))

        def on_epoch_end(self, *_: Any) -> None:
            """Its steps have been counted."""

    return EpochTimings() if task.strategy == "parameter_server" else StepTimings()


def watch(dataset: Any) -> Any:
    """Note the batch size of a dataset, and return it so that it notes when each batch leaves it, if steps can be
    matched with batches: each step takes one, and it is made in this process."""
    global batch_size, arrivals
    batch_size = _batch_size(dataset)
    arrivals = None
    if path() is None or _task.read().strategy not in ("local", "mirrored", "horovod"):
        return dataset
    import tensorflow as tf

    seen = arrivals = collections.deque()

    def note() -> bool:
        seen.append(time.monotonic())
        return True

    def noted(*batch: Any) -> Any:
        tf.numpy_function(note, [], tf.bool)
        return batch if len(batch) > 1 else batch[0]

    # Prefetched, so that a batch which is ready in time is noted before its step begins, and noting it delays none.
    return dataset.map(noted).prefetch(1)


def _wait(begun: float, steps: int) -> Optional[float]:
    """Return how long (s) steps that began then have waited for their batches; None if that is unknown."""
    global arrivals
    if arrivals is None:
        return None
    last = begun
    for _ in range(steps):
        if not arrivals:  # a batch was not counted: the numbers of batches and steps do not agree
            arrivals = None
            return None
        last = max(last, arrivals.popleft())
    return last - begun


def _share(examples: Optional[int], task: Any) -> Optional[int]:
    """Return how many examples of a batch this task computes: batches of multi_worker_mirrored have the global size."""
    if examples is None or task.strategy != "multi_worker_mirrored":
        return examples
    return examples // int(task.workers)


def _batch_size(dataset: Any) -> Optional[int]:
    """Return the number of examples in a batch, or None. The dataset or one of those before it has made batches."""
    while dataset is not None:
        size = getattr(dataset, "_batch_size", None)
        if size is not None:
            try:
                return int(size)
            except (TypeError, ValueError):
                return None
        # These are private names of TensorFlow 2.4 to 2.21.
        dataset = getattr(dataset, "_input_dataset", None)
    return None
