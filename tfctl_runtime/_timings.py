"""Record how fast a task trains: steps, examples, seconds, the first step and the wait for input, as JSON lines.

A line has the totals of one `fit`, and is overwritten while that runs:

    {"time": 1764000123.4, "began": 1764000100.0, "steps": 400, "total": 2000, "epoch": 2, "examples": 12800,
     "seconds": 23.4, "first_step": 6.1, "first_steps": 1, "input_wait": 0.8, "evaluation": 2.5}

``time`` and ``began`` are in epoch seconds, the rest in seconds since ``began``. ``total`` is how many steps `fit` will
have made. ``first_step`` is the time until the first ``first_steps`` steps were done, which includes the compilation.
``input_wait`` is the time that steps have waited for their batches, ``evaluation`` the time that the validation between
steps has taken. Unknown values are null.
"""

import collections
import contextlib
import json
import os
import time
from typing import Any, Callable, Deque, List, Optional

from tfctl_runtime import _task

#: Where tfctl keeps the directories of tasks (tfctl.node.names.JOBS).
_JOBS = "/var/lib/tfctl/jobs"
_NAME = "timings.jsonl"
#: How often (s) the line is overwritten, and its length: it is filled with spaces.
_EVERY_S, _LENGTH = 1.0, 400

#: The datasets that shard() and dataset() have returned. One of them is that of `fit`, another may be for validation.
sources: "List[Source]" = []


class Source:
    """A dataset of shard() or dataset(). ``size``: how many examples are in a batch, if that is known.

    ``batches``: how many batches a step takes. ``workers``: how many workers divide each batch among them.
    ``arrivals``: when each batch that no step has used yet left the dataset. ``open``: whether arrivals are noted,
    which only `fit` allows: nothing else uses them up.
    """

    def __init__(self, size: Optional[int], batches: int = 1, workers: int = 1) -> None:
        self.size, self.batches, self.workers = size, batches, workers
        self.arrivals: Deque[float] = collections.deque()
        self.open = False

    def examples(self, size: Optional[int]) -> Optional[int]:
        """Return how many examples this task computes in each step. ``size``: of a batch, if the script says it."""
        size = self.size if size is None else size
        return None if size is None else size * self.batches // self.workers

    def reset(self, noting: bool) -> None:
        """Forget the arrivals. ``noting``: note those that follow."""
        self.arrivals.clear()
        self.open = noting

    def note(self) -> bool:
        """Note that a batch leaves the dataset."""
        if self.open:
            self.arrivals.append(time.monotonic())
        return True

    def wait(self, begun: float, steps: int) -> Optional[float]:
        """Return how long (s) steps that began then have waited for their batches; None if that is unknown."""
        last = begun
        for _ in range(steps * self.batches):
            if not self.arrivals:  # a batch was not noted: the numbers of batches and steps do not agree
                self.open = False
                return None
            last = max(last, self.arrivals.popleft())
        return last - begun


class Timings:
    """The totals of one `fit`. ``examples``: in each step, if known. ``write``: takes the line.

    ``epochs``: how many there are; ``epoch``: the number of the present one, from 1; ``epoch_steps``: how many steps
    each has, if known.
    """

    def __init__(
        self, examples: Optional[int], write: Callable[[str], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.examples = examples
        self.epochs: Optional[int] = None
        self.epoch: Optional[int] = None
        self.epoch_steps: Optional[int] = None
        self._first_epoch: Optional[int] = None
        self._write, self._clock = write, clock
        self._began, self._began_at = clock(), time.time()
        self._steps = self._first_steps = 0
        self._first: Optional[float] = None
        self._wait: Optional[float] = 0.0
        self._evaluation = 0.0
        self._evaluates_since: Optional[float] = None
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

    def begins(self, epoch: int) -> None:
        """Begin an epoch, from 1."""
        self.epoch = epoch
        if self._first_epoch is None:  # `fit` may go on where an earlier one has ended
            self._first_epoch = epoch

    def counted(self, steps: int) -> None:
        """Count steps of which only their number is known, and not when the first one ended."""
        self._steps += steps
        self._wait = None
        self._say(self._clock())

    def evaluates(self) -> None:
        """Begin an evaluation, whose time is not that of steps."""
        self._evaluates_since = self._clock()

    def evaluated(self) -> None:
        """End the evaluation."""
        if self._evaluates_since is not None:
            self._evaluation += self._clock() - self._evaluates_since
            self._evaluates_since = None

    def end(self) -> None:
        """Write the last line."""
        if self._steps:
            self._say(self._clock())

    def _say(self, now: float) -> None:
        seconds = now - self._began
        self._due = now + _EVERY_S
        total = None
        if self.epochs and self.epoch_steps:
            total = (self.epochs - (self._first_epoch or 1) + 1) * self.epoch_steps
        line = {
            "time": round(time.time(), 3),
            "began": round(self._began_at, 3),
            "steps": self._steps,
            "total": total,
            "epoch": self.epoch,
            "examples": None if self.examples is None else self._steps * self.examples,
            "seconds": round(seconds, 4),
            "first_step": None if self._first is None else round(self._first, 4),
            "first_steps": self._first_steps,
            "input_wait": None if self._wait is None else round(self._wait, 4),
            "evaluation": round(self._evaluation, 4),
        }
        self._write(json.dumps(line).ljust(_LENGTH - 1) + "\n")


def path() -> Optional[str]:
    """Return the file in this task's directory, or None outside a job on a host."""
    found = [os.environ.get("TFCTL_" + name) for name in ("JOB", "ATTEMPT", "ROLE", "INDEX")]
    if None in found:
        return None
    job, attempt, role, index = found
    folder = f"{_JOBS}/{job}/{attempt}/{role}-{index}"
    return f"{folder}/{_NAME}" if os.access(folder, os.W_OK) else None


def callback(keras: Any, size: Optional[int]) -> Any:
    """Return the Keras callback that writes the file, or one that does nothing if there is none.

    ``size``: how many examples are in each batch that the script makes; by default, what shard() or dataset() has seen.
    """
    task = _task.read()
    epoch_timings = _epoch_timings(keras, size, task)
    if task.strategy == "parameter_server":
        return epoch_timings()
    return _step_timings(epoch_timings, size, task)()


def watch(dataset: Any, context: Any = None) -> Any:
    """Note how many examples a step takes from a dataset, and return it so that it notes when each batch leaves it.

    ``context``: the tf.distribute.InputContext with which dataset() made it, None for shard(). The batches of the
    latter have the global size. Arrivals are noted if this process makes the batches, and steps can be matched with
    them.
    """
    task, size = _task.read(), _batch_size(dataset)
    if context is None:
        source = _divided(size, task)
    else:
        source = Source(size, max(1, context.num_replicas_in_sync // context.num_input_pipelines))
    sources.append(source)
    # The workers of multi_worker_mirrored divide a batch of shard() in ways of their own.
    matching = ("local", "mirrored", "horovod") + (() if context is None else ("multi_worker_mirrored",))
    if path() is None or task.strategy not in matching:
        return dataset
    import tensorflow as tf

    def noted(*batch: Any) -> Any:
        tf.numpy_function(source.note, [], tf.bool)
        return batch if len(batch) > 1 else batch[0]

    # Prefetched, so that a batch which is ready in time is noted before its step begins, and noting it delays none.
    return dataset.map(noted).prefetch(source.batches)


def _epoch_timings(keras: Any, size: Optional[int], task: _task.Task) -> Any:
    """Return the class of the callback that counts epochs."""

    class EpochTimings(keras.callbacks.Callback):  # type: ignore[misc]
        """Counts whole epochs. Under parameter_server, Keras accepts no callback with methods for batches, because it
        only schedules steps, and waits for them at the end of an epoch."""

        def __init__(self) -> None:
            super().__init__()
            self._timings: Optional[Timings] = None
            self._file: Optional[int] = None
            self._line_at = 0

        def on_train_begin(self, *_: Any) -> None:
            where = path()
            if where is None:
                return
            try:
                self._file = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
                self._line_at = os.lseek(self._file, 0, os.SEEK_END)
            except OSError:
                return
            self._timings = Timings(_agreed(size, task), self._put)
            self._timings.epochs = self.params.get("epochs")
            _reset(noting=True)

        def on_epoch_begin(self, epoch: int, *_: Any) -> None:
            if self._timings is not None:
                self._timings.begins(epoch + 1)
                self._timings.epoch_steps = self.params.get("steps")

        def on_epoch_end(self, *_: Any) -> None:
            steps = self.params.get("steps")
            if self._timings is not None and steps:
                self._timings.counted(steps)

        def on_test_begin(self, *_: Any) -> None:
            if self._timings is not None:
                self._timings.evaluates()

        def on_test_end(self, *_: Any) -> None:
            if self._timings is not None:
                self._timings.evaluated()

        def on_train_end(self, *_: Any) -> None:
            _reset(noting=False)
            if self._timings is not None:
                self._timings.end()
                self._timings = None
            if self._file is not None:
                os.close(self._file)
                self._file = None

        def _put(self, line: str) -> None:
            # A full disk does not end the training.
            with contextlib.suppress(OSError):
                if self._file is not None:
                    os.pwrite(self._file, line.encode(), self._line_at)

    return EpochTimings


def _step_timings(epoch_timings: Any, size: Optional[int], task: _task.Task) -> Any:
    """Return the class of the callback that counts steps. ``epoch_timings``: its base."""

    class StepTimings(epoch_timings):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            # Keras 2 then passes the logs as they are, and does not wait for their values after each step.
            self._supports_tf_logs = True
            self._begun = (0, 0.0)
            self._source: Optional[Source] = None

        def on_train_begin(self, *_: Any) -> None:
            self._source = None
            super().on_train_begin()

        def on_train_batch_begin(self, batch: int, *_: Any) -> None:
            self._begun = (batch, time.monotonic())

        def on_train_batch_end(self, batch: int, *_: Any) -> None:
            if self._timings is None:
                return
            if self._source is None:
                self._source = _in_use()
                if self._source is not None:
                    self._timings.examples = self._source.examples(size)
                else:
                    self._source = Source(None)
                    if size is not None:  # `fit` has another dataset than those of dataset(), whose batches are noted
                        self._timings.examples = _divided(size, task).examples(None)
            # Keras 2 gives the number of the last step that it has executed at once, Keras 3 that of the first.
            each = getattr(self.model, "steps_per_execution", 1)
            steps = max(1, batch - self._begun[0] + 1, each if isinstance(each, int) else 1)
            self._timings.stepped(steps, self._source.wait(self._begun[1], steps))

        def on_epoch_end(self, *_: Any) -> None:
            """Its steps have been counted."""

    return StepTimings


def _reset(noting: bool) -> None:
    for source in sources:
        source.reset(noting)


def _in_use() -> Optional[Source]:
    """Return the dataset of the steps that have ended; None if it is unknown. The others note nothing from now on."""
    used = [source for source in sources if source.arrivals]
    for source in sources:
        source.open = [source] == used
    return used[0] if len(used) == 1 else None


def _agreed(size: Optional[int], task: _task.Task) -> Optional[int]:
    """Return how many examples a step has, if that does not depend on which of the datasets is that of `fit`."""
    found = {source.examples(size) for source in sources or [_divided(size, task)]}
    return found.pop() if len(found) == 1 else None


def _divided(size: Optional[int], task: _task.Task) -> Source:
    """Return a source with batches that this task computes alone or, under multi_worker_mirrored, a share of."""
    return Source(size, workers=int(task.workers) if task.strategy == "multi_worker_mirrored" else 1)


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
