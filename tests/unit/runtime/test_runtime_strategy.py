"""The strategy of each job, and the tasks that serve."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tfctl_runtime as runtime
from tests.unit.runtime.a_job import PS, job, tf_config

ROOT = Path(__file__).parents[3]
FAKES = Path(__file__).parent / "fakes"


@pytest.mark.parametrize(
    ("strategy", "config", "gpus", "expected"),
    [
        ("", "", 0, "Strategy"),
        ("", "", 1, "Strategy"),
        ("", "", 2, "MirroredStrategy"),
        ("mirrored", "", 1, "MirroredStrategy"),
        ("multi_worker_mirrored", tf_config("worker", 0, worker=2), 2, "MultiWorkerMirroredStrategy"),
        ("multi_worker_mirrored", tf_config("evaluator", evaluator=1), 2, "Strategy"),
        ("parameter_server", tf_config("chief", **PS), 0, "ParameterServerStrategy"),
        ("parameter_server", tf_config("evaluator", evaluator=1), 0, "Strategy"),
        ("custom", tf_config("worker", 0, worker=2), 0, "MultiWorkerMirroredStrategy"),
        ("", tf_config("chief", **PS), 0, "ParameterServerStrategy"),
    ],
)
def test_each_job_gets_its_tf_distribute_strategy(
    monkeypatch: pytest.MonkeyPatch, tf: Any, strategy: str, config: str, gpus: int, expected: str
) -> None:
    tf.GPUS[:] = [f"/device:GPU:{i}" for i in range(gpus)]
    job(monkeypatch, strategy, config)
    found = runtime.strategy()
    assert type(found).__name__ == expected
    assert runtime.strategy() is found, "a second one would be a fault to TensorFlow"


def test_mirrored_uses_all_gpus_or_every_logical_cpu(monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    tf.CPUS[:] = ["/device:CPU:0", "/device:CPU:1"]
    job(monkeypatch, "mirrored")
    assert runtime.strategy().asked == ((tf.CPUS,), {})


def test_arguments_reach_the_strategy(monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    job(monkeypatch, "multi_worker_mirrored", tf_config("worker", 0, worker=2))
    with pytest.raises(ValueError, match="communication is auto, ring or nccl, not 'mpi'"):
        runtime.strategy(communication="mpi")
    made = runtime.strategy(communication="ring")
    assert made.asked[1] == {"communication_options": tf.CommunicationImplementation.RING}
    with pytest.raises(ValueError, match="before with other arguments"):
        runtime.strategy(communication="nccl")


@pytest.mark.parametrize("where", ["distribute", "experimental"])
def test_the_variable_partitioner_reaches_the_strategy(monkeypatch: pytest.MonkeyPatch, tf: Any, where: str) -> None:
    if where == "experimental":  # up to TensorFlow 2.5
        monkeypatch.delattr(tf.distribute, "ParameterServerStrategy")
        monkeypatch.setattr(
            tf.distribute.experimental, "ParameterServerStrategy", tf.ParameterServerStrategy, raising=False
        )
    job(monkeypatch, "parameter_server", tf_config("chief", **PS))

    def partitioner() -> None: ...

    made = runtime.strategy(variable_partitioner=partitioner)
    assert set(made.asked[0][0].cluster) == {"chief", "ps", "worker"}
    assert made.asked[1] == {"variable_partitioner": partitioner}


@pytest.mark.parametrize(
    ("strategy", "config", "said"),
    [
        ("parameter_server", tf_config("worker", 1, **PS), "worker/1 serves the chief; call serve_forever_if_needed"),
        ("tf1_ps", tf_config("worker", 0, ps=1, worker=1), "tf1_ps has no tf.distribute.Strategy"),
        ("estimator", tf_config("chief", **PS), "estimator has no tf.distribute.Strategy"),
    ],
)
@pytest.mark.usefixtures("tf")
def test_a_task_without_a_tf_distribute_strategy_raises_an_error(
    monkeypatch: pytest.MonkeyPatch, strategy: str, config: str, said: str
) -> None:
    job(monkeypatch, strategy, config)
    with pytest.raises(RuntimeError, match=said):
        runtime.strategy()


def test_an_old_tensorflow_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch, tf: Any) -> None:
    monkeypatch.setattr(tf, "__version__", "1.15.5")
    with pytest.raises(RuntimeError, match=r"TensorFlow is 1\.15\.5; 2\.4 or newer"):
        runtime.strategy()


SCRIPT = ["-c", "import tfctl_runtime; tfctl_runtime.serve_forever_if_needed(); print('on')"]
MODULE = ["-m", "tfctl_runtime"]


def serving(role: str, port: int, strategy: str, words: list[str] = SCRIPT) -> subprocess.Popen[str]:
    cluster = {name: ["127.0.0.1:1"] for name in ("chief", "ps", "worker")}
    config = {"cluster": {**cluster, role: [f"127.0.0.1:{port}"]}, "task": {"type": role, "index": 0}}
    told = {"TFCTL_STRATEGY": strategy, "TF_CONFIG": json.dumps(config), "PYTHONPATH": f"{ROOT}:{FAKES}"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *words], env={**os.environ, **told}, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(
    ("role", "strategy", "words", "end"),
    [
        ("ps", "parameter_server", SCRIPT, signal.SIGTERM),
        ("worker", "parameter_server", SCRIPT, signal.SIGINT),
        ("ps", "tf1_ps", SCRIPT, signal.SIGTERM),
        ("worker", "parameter_server", MODULE, signal.SIGTERM),
    ],
)
def test_a_serving_task_serves_until_it_is_stopped(
    role: str, strategy: str, words: list[str], end: signal.Signals
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving(role, port, strategy, words) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"{role}/0 serves at grpc://127.0.0.1:{port}\n"
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        process.send_signal(end)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (-end, "", "")


@pytest.mark.parametrize(("role", "strategy"), [("chief", "parameter_server"), ("worker", "tf1_ps")])
def test_a_task_that_does_not_serve_returns_at_once(role: str, strategy: str) -> None:
    with serving(role, 1, strategy) as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "on\n", "")


def test_the_module_refuses_a_task_that_does_not_serve() -> None:
    with serving("chief", 1, "parameter_server", MODULE) as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    assert err == (
        "python -m tfctl_runtime: chief/0 of parameter_server does not serve others: give it its own program\n"
    )


def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with serving("ps", taken.getsockname()[1], "parameter_server") as process:
            _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "Could not start gRPC server" in err
