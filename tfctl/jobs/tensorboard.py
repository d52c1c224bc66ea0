"""Run the TensorBoard of a job's stack beside one of its tasks, and connect a port of this machine to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tfctl.errors import NotFound, TfctlError
from tfctl.jobs.exec import Splitter, execute
from tfctl.jobs.state import JobState, TaskState
from tfctl.wording import plain

if TYPE_CHECKING:
    from tfctl.remote.fleet import Fleet

#: The port of this machine, if it is free and no other is given: TensorBoard's own default.
USUAL_PORT = 6006
#: How TensorBoard says where it listens.
_READY = re.compile(r" at http://[^\s/]+:(\d{1,5})/")
#: The exit status of env(1) if there is no such program.
_NO_PROGRAM = 127


def place(state: JobState) -> TaskState:
    """Return the task beside which TensorBoard finds the output: the first that decides the result of the job. If its
    host does not answer, another one that has the output."""
    deciders = [task for task in state.tasks if task.name in state.record.deciders]
    tasks = [*deciders, *(state.tasks if state.record.shared else ())]
    return next((task for task in tasks if task.state != "unknown"), (tasks or state.tasks)[0])


def check(state: JobState) -> None:
    """Raise NotFound if the job cannot have a TensorBoard."""
    if state.record.stack == "none":
        raise NotFound(f"{state.job} has no stack, and so no TensorBoard", "copy its output: tfctl pull")
    if not state.record.output:
        raise NotFound(
            f"{state.job} has no directory on its hosts (`output: none`)",
            "run TensorBoard where the program saves: tensorboard --logdir URL",
        )


def run(
    fleet: Fleet,
    state: JobState,
    task: TaskState,
    ports: Sequence[int],
    ready: Callable[[int], object],
    say: Callable[[str], None],
) -> None:
    """Run TensorBoard until it ends, which raises TfctlError, or until this thread or the fleet does.

    ``ports``: those of this machine to try, where 0 is any. ``ready`` is called with the one that is connected to it.
    ``say`` gets a sentence for each connection that cannot be made. Call `check` first.
    """
    with ExitStack() as stack:
        watch = _Watch(fleet, task, ports, stack, ready, say)
        command = ["tensorboard", "--logdir", state.record.output, "--host", "127.0.0.1", "--port", "0"]
        result = execute(fleet, state, [task], command, watch.take, environment=False)[task]
    if isinstance(result, TfctlError):
        raise result
    if result.status == _NO_PROGRAM:
        raise NotFound(
            f"stack {state.record.stack} has no TensorBoard on {task.host}",
            "copy the output to this machine: tfctl pull",
        )
    raise TfctlError(f"TensorBoard on {task.host} has ended: {watch.last or 'it printed nothing'}")


class _Watch:
    """Reads what TensorBoard prints, and opens the tunnel once it says where it listens. ``last``: its last line."""

    def __init__(
        self,
        fleet: Fleet,
        task: TaskState,
        ports: Sequence[int],
        stack: ExitStack,
        ready: Callable[[int], object],
        say: Callable[[str], None],
    ) -> None:
        self.last = ""
        self._fleet, self._task, self._ports, self._stack = fleet, task, ports, stack
        self._ready, self._say = ready, say
        self._lines = {stream: Splitter() for stream in (1, 2)}
        self._open = False

    def take(self, _task: TaskState, stream: int, data: bytes) -> None:
        for line in self._lines[stream].add(data):
            self.last = plain(line).strip() or self.last
            if not self._open and (ready := _READY.search(line)):
                self._open = True
                self._tunnel(int(ready[1]))

    def _tunnel(self, port: int) -> None:
        from tfctl.remote.tunnel import Tunnel

        host = next(host for host in self._fleet.hosts if host.name == self._task.host)  # `execute` has connected
        tunnel = Tunnel(lambda: self._fleet.connection(host), port, self._ports, self._say)
        self._stack.enter_context(tunnel)
        self._ready(tunnel.local)
