"""Proofs: how answers become results, who meets whom, and what a proof that dies tells."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_tree import wait_until

import tfctl.verify
from tfctl.errors import Exit
from tfctl.verify.proofs import COLLECTIVES, SHARED, SOFTWARE, Answer, same_software
from tfctl.verify.report import Report, Result

ON_NODES = Path(tfctl.verify.__file__).with_name("on_nodes")
BY_NAME = {proof.name: proof for proof in (SOFTWARE, SHARED, *COLLECTIVES)}


def answer(host: str, ok: bool = True, **told: Any) -> Answer:
    return Answer(host, ok, told, 1.5)


@contextmanager
def node(name: str) -> Iterator[ModuleType]:
    """A file of on_nodes/. They import each other by plain names, as they do on a node."""
    sys.path.insert(0, str(ON_NODES))
    try:
        yield __import__(name)
    finally:
        sys.path.remove(str(ON_NODES))
        del sys.modules[name]


@given(st.integers(2, 33))
def test_everybody_meets_everybody_once_and_both_know_it(count: int) -> None:
    with node("rounds") as module:
        partners = [list(module.rounds(count, index)) for index in range(count)]
    for index, own in enumerate(partners):
        met = [partner for partner in own if partner is not None]
        assert sorted(met) == [other for other in range(count) if other != index]
        for number, partner in enumerate(own):
            assert partner is None or partners[partner][number] == index


def test_every_host_has_a_line_of_its_own() -> None:
    good = answer("a", tensorflow="2.15.1", devices=["CPU:0"])
    bad = answer("b", False, message="ImportError: libcudart.so.12: cannot open shared object file")
    left = Answer("c", False, {"message": "c: no stack tf2.15", "remedy": "tfctl provision"}, 0.1, Exit.PREFLIGHT)
    one, two, three = SOFTWARE.judge([good, bad, left])
    assert (one.state, one.details["devices"]) == ("ok", ["CPU:0"])
    assert (two.state, two.message, "tfctl logs" in two.remedy) == ("failed", bad.message, True)
    assert (three.exit, three.remedy) == (Exit.PREFLIGHT, "tfctl provision")
    assert Report((one, two, three)).exit is Exit.PREFLIGHT


def test_hosts_that_object_are_named_in_what_all_prove_together() -> None:
    said = "does not show what a wrote"
    (result,) = SHARED.judge([answer("a"), answer("b", False, message=said), answer("c", False, message=said)])
    assert (result.state, result.hosts, result.message) == ("failed", ("a", "b", "c"), f"b, c: {said}")
    assert "mount one directory" in result.remedy


def test_of_a_pair_the_slower_figure_counts() -> None:
    answers = [
        answer("a", all={"replicas": 2}, pairs=[{"partner": 1, "seconds": 1, "mb_per_s": 50.0}]),
        answer("b", all={"replicas": 2}, pairs=[{"partner": 0, "seconds": 2, "mb_per_s": 25.0}]),
    ]
    everybody, pair = BY_NAME["allreduce"].judge(answers)
    assert (everybody.state, everybody.details) == ("ok", {"replicas": 2})
    assert (pair.proof, pair.hosts, pair.details["mb_per_s"]) == ("allreduce-pair", ("a", "b"), 25.0)


def bad_pairs(answers: list[Answer]) -> dict[tuple[str, ...], str]:
    results = BY_NAME["allreduce"].judge(answers)
    return {r.hosts: r.message for r in results if (r.proof, r.state) == ("allreduce-pair", "failed")}


def test_a_pair_between_which_nothing_passes_is_named_though_the_ring_only_hangs() -> None:
    hung = "no end after 300 s"
    answers = [
        answer("a", False, message=hung, lost=[{"partner": 2, "message": "timed out"}]),
        answer("b", False, message=hung, lost=[]),
        answer("c", False, message=hung, lost=[{"partner": 0, "message": "it did not come"}]),
    ]
    assert bad_pairs(answers) == {("a", "c"): "a: nothing passes between them over TCP: timed out"}
    assert BY_NAME["allreduce"].judge(answers)[0].state == "failed"


def test_a_pair_that_came_late_and_reduced_is_well() -> None:
    good = {"partner": 1, "seconds": 1, "mb_per_s": 50.0}
    answers = [
        answer("a", all={}, pairs=[good], lost=[{"partner": 1, "message": "connection refused"}]),
        answer("b", all={}, pairs=[{**good, "partner": 0}], lost=[]),
    ]
    assert [result.state for result in BY_NAME["allreduce"].judge(answers)] == ["ok", "ok"]


def test_of_pairs_that_broke_off_the_one_that_both_blame_is_bad() -> None:
    """c met a when a was through already."""
    answers = [
        answer("a", False, message="with b", broken={"partner": 1, "message": "Deadline Exceeded"}, lost=[]),
        answer("b", False, message="with a", broken={"partner": 0, "message": "Unavailable"}, lost=[]),
        answer("c", False, message="with a", broken={"partner": 0, "message": "Unavailable"}, lost=[]),
        answer("d", False, message="it reported nothing"),
    ]
    assert bad_pairs(answers) == {("a", "b"): "a: Deadline Exceeded"}


def meet(number: int, absent: tuple[int, ...] = (), nonces: dict[int, str] | None = None, patience: float = 30) -> Any:
    """What each of so many hosts, here with a port of its own each, tells of the others."""
    with ExitStack() as held:
        ports = []
        for _ in range(number):
            ports.append(held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1])
    addresses = [f"127.0.0.1:{port}" for port in ports]
    present = [index for index in range(number) if index not in absent]
    with node("pairs") as module, ThreadPoolExecutor(number) as hosts:
        words = [(index, addresses, (nonces or {}).get(index, "word"), patience) for index in present]
        told = list(hosts.map(lambda word: module.lost(*word), words))
    for index in present:
        socket.create_server(("127.0.0.1", ports[index])).close()  # TensorFlow listens there next
    return {i: {each["partner"]: each["message"] for each in own} for i, own in zip(present, told, strict=True)}


def test_every_pair_meets_over_tcp_and_the_ports_are_free_again() -> None:
    assert meet(4) == {index: {} for index in range(4)}


def test_who_cannot_be_met_is_named_by_all_others_and_nobody_else_is() -> None:
    assert meet(4, absent=(2,), patience=3) == {
        0: {2: "connection refused"}, 1: {2: "connection refused"}, 3: {2: "it did not come"},
    }  # fmt: skip


def test_another_job_at_an_address_is_no_partner() -> None:
    told = meet(3, nonces={1: "other"}, patience=3)
    assert {index: set(lost) for index, lost in told.items()} == {0: {1}, 1: {0, 2}, 2: {1}}


def test_hosts_with_other_versions_are_the_odd_ones() -> None:
    answers = [answer(name, horovod="0.28.1") for name in "ab"] + [answer("c", horovod="0.19.5"), answer("d")]
    (result,) = same_software(answers)
    assert (result.state, result.hosts) == ("failed", ("c",))
    assert result.message == "horovod: c has 0.19.5; the others have 0.28.1"
    assert same_software(answers[:2]) == []


@pytest.mark.parametrize(
    ("proof", "told", "why"),
    [
        ("horovod-gloo", {"horovod_has": ["mpi"]}, "b: no Horovod with Gloo there (tfctl_horovod)"),
        ("horovod-gloo", {"horovod_has": ["gloo", "mpi"]}, ""),
        ("horovod-mpi", {"horovod_has": ["gloo"]}, "a, b: no Horovod with MPI there (tfctl_horovod, tfctl_openmpi)"),
        ("allreduce", {}, ""),
    ],
)
def test_what_a_host_does_not_have_is_not_tried(proof: str, told: dict[str, Any], why: str) -> None:
    has = answer("a", tensorflow="2.15.1", horovod_has=["gloo"])
    assert BY_NAME[proof].obstacle([has, answer("b", **told)]) == why


def test_an_old_tensorflow_has_no_collectives_of_its_own() -> None:
    why = "TensorFlow 2.0.0 has no stable MultiWorkerMirroredStrategy"
    assert BY_NAME["allreduce"].obstacle([answer("a", tensorflow="2.0.0")]) == why


def test_a_report_is_json_and_junit_and_an_exit_code() -> None:
    good = Result("tensorflow", ("a",), "ok", seconds=1.5)
    skipped = Result("horovod-gloo", ("a",), "not-tried", "a: no Horovod")
    said = "\x1b[31mred\x1b[0m\x00 \ud800 \ufffe ä <SIGILL>"
    assert Report((good, skipped)).exit is Exit.OK
    report = Report((good, skipped, Result("tensorflow", ("b",), "failed", said, "run it elsewhere")))
    assert report.exit is Exit.FAILED
    assert report.to_json()["results"][2]["message"] == said
    suite = ElementTree.fromstring(report.to_junit())
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    failure = suite[2].find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("[31mred[0m   ä <SIGILL>", "run it elsewhere")


def begin_main(folder: Path, program: str, seconds: float, *more: str) -> subprocess.Popen[str]:
    for name in ("main.py", "telling.py"):
        (folder / name).write_text((ON_NODES / name).read_text())
    (folder / "proof.py").write_text(program)
    command = [sys.executable, str(folder / "main.py"), "proof", str(seconds), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_main(folder: Path, program: str, seconds: float = 60, *more: str, exits: int = 0) -> dict[str, Any]:
    return end_main(begin_main(folder, program, seconds, *more), exits)


def end_main(process: subprocess.Popen[str], exits: int) -> dict[str, Any]:
    said, _ = process.communicate(timeout=60)
    assert process.returncode == exits
    (line,) = [line for line in said.splitlines() if line.startswith("tfctl-verify ")]
    found: dict[str, Any] = json.loads(line.removeprefix("tfctl-verify "))
    return found


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGILL)", "lacks an instruc"),
        ("import time; time.sleep(60)", "no end after 1 s"),
        ("raise SystemExit('no licence')", "ended with exit code 1 and reported nothing\nno licence"),
        ("from telling import tell\ntell(lambda: 1 / 0)", "ZeroDivisionError: division by zero"),
        ("from telling import Failed, tell\ndef f(): raise Failed('x is y')\ntell(f)", "x is y"),
    ],
)
def test_however_a_proof_ends_one_line_tells_of_it(tmp_path: Path, program: str, says: str) -> None:
    found = run_main(tmp_path, program, 1 if "sleep" in program else 60)
    assert not found["ok"]
    assert says in found["message"]


def test_what_is_noted_counts_however_the_proof_ends(tmp_path: Path) -> None:
    found = run_main(tmp_path, "from telling import note, tell\nnote(lost=[1])\nraise SystemExit(3)")
    assert (found["lost"], found["ok"]) == ([1], False)
    assert "so-far" not in found["message"]


def test_who_is_stopped_since_another_host_has_failed_tells_what_it_knows(tmp_path: Path) -> None:
    failed = run_main(tmp_path, "from telling import tell\ntell(lambda: 1 / 0)", 60, "together", exits=1)
    assert not failed["ok"], "so that the others are stopped"
    program = "import time\nfrom pathlib import Path\nfrom telling import note\nnote(lost=[1])\n"
    program += f"Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(60)"
    process = begin_main(tmp_path, program, 60, "together")
    wait_until((tmp_path / "begun").exists, lambda: "it does not begin")
    process.terminate()
    told = end_main(process, exits=1)
    assert (told["ok"], told["stopped"], told["lost"]) == (False, True, [1])
    bad = [
        answer("a", False, **{"message": failed["message"]}),
        answer("b", False, message=told["message"], stopped=True),
    ]
    assert [result.message.partition(":")[0] for result in SHARED.judge(bad)] == ["a"]


def test_a_proof_that_holds_tells_what_it_found(tmp_path: Path) -> None:
    found = run_main(tmp_path, "from telling import tell\nprint('noise', end='')\ntell(lambda: {'a': 1})")
    assert found == {"ok": True, "a": 1}
