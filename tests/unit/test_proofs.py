"""The checks of `tfctl verify`: how answers become results, which hosts meet, and what a check that dies reports."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_tree import wait_until

import tfctl.verify
from tfctl.errors import Exit
from tfctl.verify.proofs import COLLECTIVES, SHARED, SOFTWARE, HostAnswer, burn_in, same_software
from tfctl.verify.report import HostReport, Software, Speed
from tfctl.verify.results import ProofResult, ProofResults

ON_NODES = Path(tfctl.verify.__file__).with_name("on_nodes")
BY_NAME = {proof.name: proof for proof in (SOFTWARE, SHARED, *COLLECTIVES)}


def answer(host: str, ok: bool = True, **values: Any) -> HostAnswer:
    return HostAnswer(host, HostReport(ok=ok, **values), 1.5)


def software(tensorflow: str = "2.15.1", **values: Any) -> Software:
    return Software(devices=("CPU:0",), python="3.11.2", tensorflow=tensorflow, **values)


@contextmanager
def node(name: str) -> Iterator[ModuleType]:
    """Import a file of on_nodes/. These files import each other by plain names, as they do on a node."""
    sys.path.insert(0, str(ON_NODES))
    try:
        yield __import__(name)
    finally:
        sys.path.remove(str(ON_NODES))
        del sys.modules[name]


@given(st.integers(2, 33))
def test_rounds_pair_every_two_hosts_exactly_once(count: int) -> None:
    with node("rounds") as module:
        partners = [list(module.rounds(count, index)) for index in range(count)]
    for index, own in enumerate(partners):
        met = [partner for partner in own if partner is not None]
        assert sorted(met) == [other for other in range(count) if other != index]
        for number, partner in enumerate(own):
            assert partner is None or partners[partner][number] == index


def test_software_check_reports_one_result_per_host() -> None:
    good = answer("a", software=software())
    bad = answer("b", False, message="ImportError: libcudart.so.12: cannot open shared object file")
    report = HostReport(ok=False, message="c: no stack tf2.15", remedy="tfctl provision")
    left = HostAnswer("c", report, 0.1, Exit.PREFLIGHT)
    one, two, three = SOFTWARE.judge([good, bad, left])
    assert (one.state, one.facts()) == ("ok", {"devices": ["CPU:0"], "python": "3.11.2", "tensorflow": "2.15.1"})
    assert (two.state, two.message, "tfctl logs" in two.remedy) == ("failed", bad.report.message, True)
    assert (three.exit, three.remedy) == (Exit.PREFLIGHT, "tfctl provision")
    assert ProofResults((one, two, three)).exit is Exit.PREFLIGHT


def test_shared_check_names_the_hosts_that_failed() -> None:
    text = "does not show what a wrote"
    (result,) = SHARED.judge([answer("a"), answer("b", False, message=text), answer("c", False, message=text)])
    assert (result.state, result.hosts, result.message) == ("failed", ("a", "b", "c"), f"b, c: {text}")
    assert "mount one directory" in result.remedy


TWO = Speed(mb_per_s=25.0, seconds=2, replicas=2)


def test_allreduce_reports_the_slower_bandwidth_of_a_pair() -> None:
    answers = [
        answer("a", all=TWO, pairs=[{"partner": 1, "seconds": 1, "mb_per_s": 50.0}]),
        answer("b", all=TWO, pairs=[{"partner": 0, "seconds": 2, "mb_per_s": 25.0}]),
    ]
    everybody, pair = BY_NAME["allreduce"].judge(answers)
    assert (everybody.state, everybody.details) == ("ok", TWO)
    assert (pair.proof, pair.hosts) == ("allreduce-pair", ("a", "b"))
    assert pair.facts() == {"mb_per_s": 25.0, "seconds": 2}


def test_allreduce_flags_a_pair_that_is_much_slower_than_most() -> None:
    speeds = {"ab": 100.0, "ac": 110.0, "bc": 40.0}

    def pairs(own: str) -> list[dict[str, object]]:
        others = [other for other in "abc" if other != own]
        return [
            {"partner": "abc".index(other), "seconds": 1, "mb_per_s": speeds["".join(sorted(own + other))]}
            for other in others
        ]

    results = BY_NAME["allreduce"].judge([answer(host, all=TWO, pairs=pairs(host)) for host in "abc"])
    [slow] = [result for result in results if result.message]
    assert (slow.hosts, slow.state) == (("b", "c"), "ok")
    assert slow.message == "slow: 40.0 MB/s, and the median of all pairs is 100.0 MB/s"
    assert slow.facts()["slow"] is True


def device(number: int = 0, **values: Any) -> dict[str, Any]:
    return {"device": f"GPU:{number}", "name": "NVIDIA A100", "gflops": 15000.0, "lowest_gflops": 14500.0, **values}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, ""),
        ({"wrong": 2}, "GPU:0 computed 2 products wrongly"),
        ({"ecc_errors": 1}, "GPU:0 had 1 memory error that ECC could not correct"),
        (
            {"lowest_gflops": 9000.0, "celsius": 91},
            "GPU:0 is not steady: 9000 GFLOP/s in its slowest sample, 15000 in most, at up to 91 °C",
        ),
        (
            {"gflops": 13000.0, "lowest_gflops": 13000.0},
            "GPU:0 is slow: 13000 GFLOP/s, and the median of all NVIDIA A100 is 15000",
        ),
        ({"device": "CPU:0", "name": "CPU", "lowest_gflops": 9.0}, ""),
    ],
)
def test_burn_in_names_each_device_that_is_wrong_unsteady_or_slower_than_its_like(
    values: dict[str, Any], message: str
) -> None:
    sound = [answer(host, burned=[device(), device(1)]) for host in "bc"]
    first, *others = burn_in(60).judge([answer("a", burned=[device(**values)]), *sound])
    assert (first.state, first.message) == ("failed" if message else "ok", message)
    assert {result.state for result in others} == {"ok"}


def bad_pairs(answers: list[HostAnswer]) -> dict[tuple[str, ...], str]:
    results = BY_NAME["allreduce"].judge(answers)
    return {r.hosts: r.message for r in results if (r.proof, r.state) == ("allreduce-pair", "failed")}


def test_allreduce_names_the_disconnected_pair_when_the_whole_ring_hangs() -> None:
    hung = "allreduce ran longer than 300 s and was killed"
    answers = [
        answer("a", False, message=hung, lost=[{"partner": 2, "message": "timed out"}]),
        answer("b", False, message=hung, lost=[]),
        answer("c", False, message=hung, lost=[{"partner": 0, "message": "it did not connect"}]),
    ]
    assert bad_pairs(answers) == {("a", "c"): "a: they cannot connect to each other over TCP: timed out"}
    assert BY_NAME["allreduce"].judge(answers)[0].state == "failed"


def test_allreduce_ignores_a_failed_connection_when_the_pair_finished() -> None:
    good = {"partner": 1, "seconds": 1, "mb_per_s": 50.0}
    answers = [
        answer("a", all=TWO, pairs=[good], lost=[{"partner": 1, "message": "connection refused"}]),
        answer("b", all=TWO, pairs=[{**good, "partner": 0}], lost=[]),
    ]
    assert [result.state for result in BY_NAME["allreduce"].judge(answers)] == ["ok", "ok"]


def test_allreduce_blames_a_broken_pair_only_when_both_hosts_report_it() -> None:
    """Host c met host a when a had already finished."""
    answers = [
        answer("a", False, message="with b", broken={"partner": 1, "message": "Deadline Exceeded"}, lost=[]),
        answer("b", False, message="with a", broken={"partner": 0, "message": "Unavailable"}, lost=[]),
        answer("c", False, message="with a", broken={"partner": 0, "message": "Unavailable"}, lost=[]),
        answer("d", False, message="it reported nothing"),
    ]
    assert bad_pairs(answers) == {("a", "b"): "a: Deadline Exceeded"}


def meet(number: int, absent: tuple[int, ...] = (), nonces: dict[int, str] | None = None, patience: float = 30) -> Any:
    """Run the TCP check between this many hosts, each with a port on loopback; return {host: {partner: error}}."""
    with ExitStack() as held:
        ports = []
        for _ in range(number):
            ports.append(held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1])
    addresses = [f"127.0.0.1:{port}" for port in ports]
    present = [index for index in range(number) if index not in absent]
    with node("pairs") as module, ThreadPoolExecutor(number) as hosts:
        words = [(index, addresses, (nonces or {}).get(index, "word"), patience) for index in present]
        values = list(hosts.map(lambda word: module.lost(*word), words))
    for index in present:
        socket.create_server(("127.0.0.1", ports[index])).close()  # TensorFlow listens there next
    return {i: {each["partner"]: each["message"] for each in own} for i, own in zip(present, values, strict=True)}


def test_tcp_check_connects_every_pair_and_frees_its_ports() -> None:
    assert meet(4) == {index: {} for index in range(4)}


def test_tcp_check_names_only_the_absent_host() -> None:
    assert meet(4, absent=(2,), patience=3) == {
        0: {2: "connection refused"}, 1: {2: "connection refused"}, 3: {2: "it did not connect"},
    }  # fmt: skip


def test_tcp_check_rejects_a_host_that_belongs_to_another_job() -> None:
    values = meet(3, nonces={1: "other"}, patience=3)
    assert {index: set(lost) for index, lost in values.items()} == {0: {1}, 1: {0, 2}, 2: {1}}


def test_software_versions_that_differ_from_the_majority_are_reported() -> None:
    versions = {"a": "0.28.1", "b": "0.28.1", "c": "0.19.5", "d": None}
    answers = [answer(name, software=software(horovod=version)) for name, version in versions.items()]
    (result,) = same_software(answers)
    assert (result.state, result.hosts) == ("failed", ("c",))
    assert result.message == "horovod: c has 0.19.5; the others have 0.28.1"
    assert same_software(answers[:2]) == []


@pytest.mark.parametrize(
    ("proof", "values", "why"),
    [
        ("horovod-gloo", {"horovod_has": ("mpi",)}, "b: no Horovod with Gloo there (tfctl_horovod)"),
        ("horovod-gloo", {"horovod_has": ("gloo", "mpi")}, ""),
        ("horovod-mpi", {"horovod_has": ("gloo",)}, "a, b: no Horovod with MPI there (tfctl_horovod, tfctl_openmpi)"),
        ("allreduce", {}, ""),
    ],
)
def test_check_is_not_tried_when_a_host_lacks_what_it_needs(proof: str, values: dict[str, Any], why: str) -> None:
    assert BY_NAME[proof].obstacle({"a": software(horovod_has=("gloo",)), "b": software(**values)}) == why


def test_allreduce_is_not_tried_with_a_tensorflow_before_its_strategy_was_stable() -> None:
    why = "TensorFlow 2.0.0 has no stable MultiWorkerMirroredStrategy"
    assert BY_NAME["allreduce"].obstacle({"a": software("2.0.0")}) == why


def test_report_becomes_json_junit_and_an_exit_code() -> None:
    good = ProofResult("tensorflow", ("a",), "ok", seconds=1.5)
    skipped = ProofResult("horovod-gloo", ("a",), "not-tried", "a: no Horovod")
    text = "\x1b[31mred\x1b[0m\x00 \ud800 \ufffe ä <SIGILL>"
    assert ProofResults((good, skipped)).exit is Exit.OK
    report = ProofResults((good, skipped, ProofResult("tensorflow", ("b",), "failed", text, "run it elsewhere")))
    assert report.exit is Exit.FAILED
    assert report.all[2].to_json()["message"] == text
    suite = ElementTree.fromstring(report.to_junit())
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    failure = suite[2].find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("[31mred[0m   ä <SIGILL>", "run it elsewhere")


class FakeCuda:
    """A fake of libcuda.so.1. ``code``: what cuInit returns, as the errors of cuda.h."""

    names: ClassVar[dict[int, bytes]] = {802: b"CUDA_ERROR_SYSTEM_NOT_READY", 999: b"CUDA_ERROR_UNKNOWN"}

    def __init__(self, code: int) -> None:
        self.code = code

    def cuInit(self, flags: int) -> int:
        assert flags == 0
        return self.code

    def cuGetErrorName(self, code: int, place: Any) -> int:
        """Write the name of an error. An unknown one is itself an error, CUDA_ERROR_INVALID_VALUE."""
        place._obj.value = self.names.get(code)
        return 0 if code in self.names else 1


@pytest.mark.parametrize(
    ("code", "message", "remedy"),
    [
        (999, "CUDA_ERROR_UNKNOWN", "tfctl provision INVENTORY --tags job_host,nvidia_driver"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"),
        (54321, "error 54321", "restart the host"),
    ],
)
def test_software_check_names_the_error_of_cuda_with_its_remedy(code: int, message: str, remedy: str) -> None:
    says = f"^the driver shows 2 GPUs, .*{message}$"
    with node("software") as module, pytest.raises(module.ProofFailed, match=says) as error:
        module.start_cuda(2, {"libcuda.so.1": FakeCuda(code)}.__getitem__)
    assert remedy in error.value.details["remedy"]


def test_software_check_accepts_a_cuda_that_starts() -> None:
    with node("software") as module:
        module.start_cuda(2, {"libcuda.so.1": FakeCuda(0)}.__getitem__)


def test_software_check_finds_the_libraries_of_wheels(tmp_path: Path) -> None:
    """The loader does not find them without the run path of TensorFlow."""
    folder = tmp_path / "nvidia/cuda_runtime/lib"
    folder.mkdir(parents=True)
    with node("software") as module:
        assert not module.loads("libcudart-of-a-test.so.12", [tmp_path])
        (folder / "libcudart-of-a-test.so.12").write_bytes(b"not a library")
        assert not module.loads("libcudart-of-a-test.so.12", [tmp_path])
        shutil.copy(any_library(), folder / "libcudart-of-a-test.so.12")
        assert module.loads("libcudart-of-a-test.so.12", [tmp_path])


def any_library() -> str:
    """Return the path of a shared library that this process has loaded."""
    maps = Path("/proc/self/maps").read_text()
    found = re.search(r"/\S+/libc\.so\.6$", maps, re.MULTILINE)
    assert found
    return found[0]


def begin_main(folder: Path, program: str, seconds: float, *more: str) -> subprocess.Popen[str]:
    for name in ("main.py", "result.py"):
        (folder / name).write_text((ON_NODES / name).read_text())
    (folder / "proof.py").write_text(program)
    command = [sys.executable, str(folder / "main.py"), "proof", str(seconds), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_main(folder: Path, program: str, seconds: float = 60, *more: str, exits: int = 0) -> dict[str, Any]:
    return end_main(begin_main(folder, program, seconds, *more), exits)


def end_main(process: subprocess.Popen[str], exits: int) -> dict[str, Any]:
    text, _ = process.communicate(timeout=60)
    assert process.returncode == exits
    (line,) = [line for line in text.splitlines() if line.startswith("tfctl-verify ")]
    found: dict[str, Any] = json.loads(line.removeprefix("tfctl-verify "))
    return found


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGILL)", "lacks an instruc"),
        ("import time; time.sleep(60)", "ran longer than 1 s and was killed"),
        ("raise SystemExit('no licence')", "ended with exit code 1 and reported nothing\nno licence"),
        ("from result import report\nreport(lambda: 1 / 0)", "ZeroDivisionError: division by zero"),
        ("from result import ProofFailed, report\ndef f(): raise ProofFailed('x is y')\nreport(f)", "x is y"),
    ],
)
def test_check_prints_one_result_line_however_it_ends(tmp_path: Path, program: str, says: str) -> None:
    found = run_main(tmp_path, program, 1 if "sleep" in program else 60)
    assert not found["ok"]
    assert says in found["message"]


def test_check_keeps_noted_values_however_it_ends(tmp_path: Path) -> None:
    found = run_main(tmp_path, "from result import note, report\nnote(lost=[1])\nraise SystemExit(3)")
    assert (found["lost"], found["ok"]) == ([1], False)
    assert "so-far" not in found["message"]


def test_check_reports_its_values_when_it_is_stopped_after_another_host_failed(tmp_path: Path) -> None:
    failed = run_main(tmp_path, "from result import report\nreport(lambda: 1 / 0)", 60, "fail-fast", exits=1)
    assert not failed["ok"], "a failure must end the task, so that tfctl stops the others"
    program = "import time\nfrom pathlib import Path\nfrom result import note\nnote(lost=[1])\n"
    program += f"Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(60)"
    process = begin_main(tmp_path, program, 60, "fail-fast")
    wait_until((tmp_path / "begun").exists, lambda: "it does not begin")
    process.terminate()
    values = end_main(process, exits=1)
    assert (values["ok"], values["stopped"], values["lost"]) == (False, True, [1])
    bad = [
        answer("a", False, **{"message": failed["message"]}),
        answer("b", False, message=values["message"], stopped=True),
    ]
    assert [result.message.partition(":")[0] for result in SHARED.judge(bad)] == ["a"]


def test_check_that_succeeds_prints_its_findings(tmp_path: Path) -> None:
    found = run_main(tmp_path, "from result import report\nprint('noise', end='')\nreport(lambda: {'a': 1})")
    assert found == {"ok": True, "a": 1}
