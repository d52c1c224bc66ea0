"""`scripts/bench scale`, with a few imitated hosts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from records import make_record

from scripts.bench_scale import command
from scripts.bench_scale.following import Arrival, Piece, arrivals, lost
from scripts.bench_scale.hosts import FakeHost
from tfctl.node import wire

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"


def words(*more: str) -> list[str]:
    return [sys.executable, str(BENCH), "scale", "--peers", "none", *more]


def within(folder: Path) -> dict[str, str]:
    """Return the environment, with this directory for temporary files."""
    return {**os.environ, "TMPDIR": str(folder)}


def test_scale_prints_what_commands_cost_on_each_number_of_hosts(tmp_path: Path) -> None:
    ran = words("--hosts", "2", "--verbs", "status,list", "--runs", "1")
    done = subprocess.run(ran, capture_output=True, text=True, timeout=60, env=within(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("tfctl ")]
    assert [row[:3] for row in rows] == [["tfctl", "status", "2"], ["tfctl", "list", "2"]]
    for row in rows:
        assert all(float(figure) > 0 for figure in row[3:])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extended
def test_scale_measures_ansible_on_hosts_without_faults() -> None:
    ran = words("--hosts", "3", "--verbs", "preflight", "--runs", "1", "-o", "json")
    with tempfile.TemporaryDirectory() as folder:  # the path of tmp_path is too long for the sockets of ssh
        done = subprocess.run(ran, capture_output=True, text=True, timeout=60, env=within(Path(folder)))
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)["commands"]
    assert (found["command"], found["hosts"], found["error"]) == ("tfctl preflight", 3, "")
    assert found["sent"] > 3 * 100_000, "the module has been sent to each host"


@pytest.mark.extended
def test_scale_follows_the_lines_of_every_host_and_counts_its_traffic(tmp_path: Path) -> None:
    ran = words("--hosts", "3", "--verbs", "logs", "--rate", "200", "--seconds", "1", "-o", "json")
    done = subprocess.run(ran, capture_output=True, text=True, timeout=60, env=within(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)["follows"]
    assert (found["hosts"], found["figures"]["lost"], found["figures"]["silent"]) == (3, 0, 0)
    assert 300 < found["figures"]["rate"] < 900
    assert 0 < found["figures"]["lag"] <= found["figures"]["worst_lag"]


def test_scale_says_why_a_command_was_not_measured_and_fails(tmp_path: Path) -> None:
    ran = words("--hosts", "1", "--verbs", "nodes", "--runs", "1", "--limit", "0.01")
    done = subprocess.run(ran, capture_output=True, text=True, timeout=60, env=within(tmp_path))
    assert done.returncode == 1
    assert "did not end in time" in done.stdout


@pytest.mark.extended
def test_scale_leaves_nothing_behind_after_ctrl_c(tmp_path: Path) -> None:
    ran = words("--hosts", "2", "--verbs", "logs", "--seconds", "600")
    with subprocess.Popen(
        ran, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=within(tmp_path)
    ) as bench:
        assert bench.stderr is not None
        while "logs -f" not in bench.stderr.readline():
            assert bench.poll() is None
        bench.send_signal(signal.SIGINT)
        bench.communicate(timeout=30)
    assert bench.returncode == 130
    assert list(tmp_path.iterdir()) == []
    assert left("cmdline", tmp_path) == []


#: Ctrl-C arrives at another time of the start of each command.
INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from scripts.bench_scale.measure import Child
for number in range(60):
    try:
        threading.Timer(number * 0.0002, os.kill, (os.getpid(), signal.SIGINT)).start()
        with Child(["sleep", "60"], os.environ, Path("/"), 2):
            time.sleep(5)
    except KeyboardInterrupt:
        pass
"""


@pytest.mark.extended
def test_ctrl_c_while_a_measured_command_starts_leaves_no_process(tmp_path: Path) -> None:
    env = {**within(tmp_path), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], env=env, start_new_session=True) as bench:
        assert bench.wait(60) == 0
    assert left("environ", tmp_path) == []


def left(file: str, folder: Path) -> list[str]:
    """Return what a file of proc(5) says about each process that has this directory in it."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to somebody else
            found.append(path.read_text(errors="replace"))
    return [text for text in found if str(folder) in text]


@pytest.mark.parametrize("more", [["--hosts", "0"], ["--verbs", "sttus"], ["--runs", "x"], ["inventory.ini"]])
def test_scale_refuses_a_wrong_option(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--peers", "none", *more])
    assert (ended.value.code, capsys.readouterr().err.startswith("usage: bench scale ")) == (2, True)


def test_a_line_arrives_with_its_end() -> None:
    first = b"worker/0 | line 7 of node1 at 1.5: x\nworker/0 | line 8 of no"
    pieces = [Piece(2.0, first), Piece(3.0, b"de1 at 1.6: x\n")]
    assert arrivals(pieces) == [Arrival(b"node1", 7, 1.5, 2.0), Arrival(b"node1", 8, 1.6, 3.0)]


def test_lines_that_are_missing_before_the_last_one_of_a_host_are_lost() -> None:
    seen = {b"node1": (3, 4, 6, 9), b"node2": (0, 1)}
    assert lost([Arrival(host, number, 0.0, 0.0) for host, numbers in seen.items() for number in numbers]) == 6


def test_only_the_first_three_imitated_hosts_of_a_job_name_all_of_them_when_it_is_stopped() -> None:
    names = tuple(f"node{number}" for number in range(1, 6))
    record = make_record([("worker", index, name) for index, name in enumerate(names)])
    named = []
    for index, name in enumerate(names):
        host = FakeHost(name, 1.0)
        task = wire.TaskStatus("worker", index, "running", None, None, 1.0, None, 0)
        host.jobs["digits"] = wire.JobStatus("digits", 1, record.run, record, None, (task,), kept=True)
        named.append(next(host.answer(wire.StopRequest("digits", hold=True))))
    assert named == [wire.Marked(1, names)] * 3 + [wire.Marked(1, ())] * 2
