"""Who is the cause, from what hosts have seen of the tasks of a job. The stacks are those of real tasks."""

from __future__ import annotations

from typing import Any

import pytest
from records import make_record, make_state

from tfctl.errors import Unreachable
from tfctl.jobs.state import JobState
from tfctl.jobs.trace import Trace, TracedTask, activity, ranges
from tfctl.jobs.why import Diagnosis, diagnose
from tfctl.node import names, wire

NOW = 1000.0
USER = wire.Frame("main", "train.py", 38)
EXECUTE = wire.Frame("quick_execute", "tensorflow/python/eager/execute.py", 53)
REDUCE = wire.Frame("collective_reduce_v2", "tensorflow/python/ops/gen_collective_ops.py", 1267)
JOIN = wire.Frame("Server.join", "tensorflow/python/training/server_lib.py", 185)
GENERATOR = (
    wire.Frame("Path.open", "pathlib.py", 1045),
    wire.Frame("rows", "train.py", 25),
    wire.Frame("_from_generator.<locals>.generator_next_fn.<locals>.generator_py_func",
               "tensorflow/python/data/ops/from_generator_op.py", 198),
    wire.Frame("FuncRegistry.__call__", "tensorflow/python/ops/script_ops.py", 270),
)  # fmt: skip
TICKS = tuple(wire.Printed(NOW - 0.5 - number, f"step {number}") for number in range(10, -1, -1))
SILENT = tuple(line._replace(time=line.time - 60) for line in TICKS)

FULL = wire.Printed(SILENT[-1].time, "OSError: [Errno 28] No space left on device")


def main(*frames: wire.Frame) -> wire.Thread:
    return wire.Thread("MainThread", False, (*frames, USER))


def seen(index: int, *threads: wire.Thread, role: str = "worker", cpu: float = 0.01, **more: Any) -> wire.TaskTrace:
    """Return what a host sees of a task: by default, that it is silent and in an operation of TensorFlow."""
    given = {"lines": SILENT, "usual": 1.0, "state": "running", **more}
    return wire.TaskTrace(role, index, 7, cpu=cpu, threads=threads or (main(EXECUTE),), **given)


def job(*traces: wire.TaskTrace, state: wire.JobStateName = "running", **reported: Any) -> tuple[JobState, Trace]:
    """Return a job with a task on each of the hosts node1, node2 and so on."""
    tasks = []
    for number, one in enumerate(traces, 1):
        made = make_state(one.role, one.index, f"node{number}", started=100.0, **reported.get(f"node{number}", {}))
        record = made.record._replace(address=f"10.0.0.{number}", port=2222)
        tasks.append(type(made)(record, made.status))
    hosts = {f"node{number}": wire.Traced(1, (one,), time=NOW) for number, one in enumerate(traces, 1)}
    found = tuple(TracedTask(task, one) for task, one in zip(tasks, traces, strict=True))
    return JobState("digits", 1, state, "", None, make_record(), tuple(tasks)), Trace(found, hosts, ())


def found(*traces: wire.TaskTrace, **more: Any) -> Diagnosis:
    return diagnose(*job(*traces, **more))


def culprit(*traces: wire.TaskTrace, **more: Any) -> tuple[str, str, str]:
    [one] = found(*traces, **more).culprits
    return one.task, one.host, one.kind


def test_job_whose_tasks_print_is_healthy() -> None:
    diagnosis = found(seen(0, lines=TICKS), seen(1, lines=TICKS))
    assert (diagnosis.verdict, diagnosis.culprits) == ("healthy", ())
    assert next(diagnosis.lines()) == "nothing is wrong with digits: it is running"


def test_job_whose_tasks_are_silent_but_compute_is_healthy() -> None:
    """As while a model is evaluated or compiled."""
    busy = main(wire.Frame("call", "tensorflow/python/x.py", 1))
    assert found(seen(0, busy, cpu=1.8), seen(1, busy, cpu=1.9)).verdict == "healthy"


def test_job_whose_tasks_all_wait_is_unknown() -> None:
    diagnosis = found(seen(0), seen(1))
    assert (diagnosis.verdict, diagnosis.culprits) == ("unknown", ())
    assert next(diagnosis.lines()).startswith("unknown: digits is running")


@pytest.mark.parametrize(
    ("trace", "kind"),
    [
        (seen(1, main(), cpu=1.0), "spinning"),
        (seen(1, main(), cpu=0.0), "stuck"),
        (seen(1, main(), cpu=0.0, waits="wait_for_partner"), "input blocks"),
        (seen(1, main(EXECUTE), wire.Thread(None, False, GENERATOR)), "input blocks"),
        (seen(1, state="stopped", cpu=0.0), "stopped"),
        (seen(1, state="frozen", cpu=0.0), "frozen"),
        (seen(1, state="blocked", cpu=0.0), "blocked in the kernel"),
        (
            seen(1, lines=(*SILENT, FULL)),
            "disk full",
        ),
    ],
)
def test_the_task_for_which_all_wait_is_the_culprit(trace: wire.TaskTrace, kind: str) -> None:
    reduce = wire.Thread("Thread-27 (worker)", False, (REDUCE,))
    assert culprit(seen(0, main(), reduce), trace, seen(2)) == ("worker/1", "node2", kind)


def test_a_silent_task_is_the_culprit_while_others_print() -> None:
    assert culprit(seen(0, lines=TICKS), seen(1, main(), cpu=0.0), seen(2, lines=TICKS))[0] == "worker/1"


def test_tasks_that_serve_are_silent_without_being_suspect() -> None:
    serves = wire.Thread("MainThread", False, (JOIN, USER))
    assert found(seen(0, lines=TICKS), seen(0, serves, role="ps", lines=(), usual=None, cpu=0.0)).verdict == "healthy"


def test_two_suspects_are_no_culprit() -> None:
    assert found(seen(0, main(), cpu=0.0), seen(1, main(), cpu=0.0), seen(2)).verdict == "unknown"


def test_the_host_that_has_lost_all_others_is_the_culprit() -> None:
    def lost(*peers: int) -> tuple[wire.Socket, ...]:
        return tuple(wire.Socket("10.0.0.9:4000", f"10.0.0.{peer}:2222", "ESTAB", 0, 99, 4, 9.0) for peer in peers)

    traces = seen(0, sockets=lost(2)), seen(1, sockets=lost(1, 3)), seen(2, sockets=lost(2))
    assert culprit(*traces) == ("worker/1", "node2", "network")
    waiting = tuple(socket._replace(retries=1) for socket in lost(2))
    assert found(seen(0, sockets=waiting), seen(1)).verdict == "unknown"


def test_a_host_that_does_not_answer_is_the_culprit() -> None:
    error = Unreachable("node2: 10.0.0.2:22 does not answer within 10 s", "check that it is up")
    error.hosts = ("node2",)
    [one] = diagnose(*job(seen(0), seen(1)), errors=[error]).culprits
    assert (one.task, one.host, one.kind) == ("", "node2", "host unreachable")


def test_the_first_error_is_the_cause_and_what_follows_a_consequence() -> None:
    lines = {
        0: (wire.Printed(900.0, "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed"),),
        1: (wire.Printed(901.0, "ModuleNotFoundError: No module named 'einops'"),),
    }
    ended = {"state": "failed", "exit_code": 1, "finished": 905.0}
    diagnosis = found(
        *(seen(index, state="gone", lines=lines[index]) for index in (0, 1)), state="failed", node1=ended, node2=ended
    )
    [one] = diagnosis.culprits
    assert (one.task, one.kind) == ("worker/1", "missing module")
    assert one.sentence == "worker/1 on node2 cannot import einops: it is not installed there"
    assert [line for line in diagnosis.evidence if line.startswith("worker/0 on node1")]


def test_task_that_was_killed_for_memory_is_named_with_its_limit() -> None:
    ended = {"state": "failed", "signal": "SIGKILL", "oom": True, "finished": 905.0, "memory": "16G"}
    [one] = found(seen(0, lines=TICKS), seen(1, state="gone"), state="failed", node2=ended).culprits
    assert (one.task, one.kind, "16G" in one.sentence) == ("worker/1", "out of memory", True)


def test_job_that_has_succeeded_is_healthy() -> None:
    assert found(seen(0), state="succeeded").verdict == "healthy"


def test_what_a_task_does_is_said_in_words() -> None:
    reduce = wire.Thread("Thread-27 (worker)", False, (REDUCE,))
    does = activity(seen(0, main(), reduce))
    assert str(does) == "waits for the other workers in a collective operation (train.py:38, in main)"
    assert str(activity(seen(0, main(EXECUTE), wire.Thread(None, False, GENERATOR)))).endswith("(train.py:25, in rows)")
    assert str(activity(seen(0, main(), cpu=1.0))) == "computes (1.0 cores) (train.py:38, in main)"
    assert str(activity(seen(0)._replace(threads=(), trouble="py-spy is not installed"))) == "py-spy is not installed"


def test_consecutive_tasks_are_a_range() -> None:
    tasks = [make_state("worker", index) for index in (0, 1, 2, 5, 7, 8)] + [make_state("ps", 0)]
    assert ranges(tasks) == "worker/0 to worker/2, worker/5, worker/7, worker/8, ps/0"
    assert names.task("ps", 0) == "ps/0"
