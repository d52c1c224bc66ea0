"""How fast a task trains: read from timings, and from the lines of known programs."""

from __future__ import annotations

import json
import re

import pytest

from tfctl.node.progress import FORMATS, any_format, format_of, progress
from tfctl.report.pace import Pace, of_lines, of_timings

#: What the programs print, as their sources format it.
TF_CNN_BENCHMARKS = """\
Step	Img/sec	total_loss
1	images/sec: 90.0 +/- 0.0 (jitter = 0.0)	8.021
10	images/sec: 95.5 +/- 0.6 (jitter = 1.3)	7.821
100	images/sec: 96.3 +/- 0.2 (jitter = 0.6)	7.503
----------------------------------------------------------------
total images/sec: 96.27
----------------------------------------------------------------
"""
HOROVOD = """\
Model: ResNet50
Batch size: 32
Number of GPUs: 4
Running benchmark...
Iter #0: 200.0 img/sec per GPU
Iter #1: 240.0 img/sec per GPU
Iter #2: 242.0 img/sec per GPU
Img/sec per GPU: 227.3 +-38.6
Total img/sec on 4 GPU(s): 960.8 +-4.0
"""
KERAS_2 = """\
Epoch 1/2
100/200 [==============>...............] - ETA: 1s - loss: 0.9
200/200 [==============================] - 5s 20ms/step - loss: 0.50 - val_loss: 0.70
Epoch 2/2
200/200 [==============================] - 2s 10ms/step - loss: 0.40 - val_loss: 0.60
"""
KERAS_2_BRIEF = """\
Epoch 1/2
200/200 - 5s - loss: 0.50 - accuracy: 0.80 - 5s/epoch - 20ms/step
Epoch 2/2
200/200 - 2s - loss: 0.40 - accuracy: 0.90 - 2s/epoch - 10ms/step
"""
KERAS_3 = """\
Epoch 1/2
200/200 ━━━━━━━━━━━━━━━━━━━━ 5s 20ms/step - accuracy: 0.80 - loss: 0.50
Epoch 2/2
200/200 ━━━━━━━━━━━━━━━━━━━━ 2s 10ms/step - accuracy: 0.90 - loss: 0.40
"""
KERAS_3_BRIEF = "200/200 - 5s - 20ms/step - accuracy: 0.8 - loss: 0.50\n200/200 - 2s - 10ms/step - loss: 0.40\n"
#: As it is printed, without a terminal too: each state of the bar is behind a \r, in one line per epoch.
KERAS_2_RAW = "\r  1/200 [....] - ETA: 5s - loss: 0.9\b\b\r200/200 [====] - 5s 20ms/step - loss: 0.50 - acc: 0.80\n"
KERAS_3_RAW = (
    "\r\x1b[1m  1/200\x1b[0m \x1b[37m━━━━\x1b[0m \x1b[1m5s\x1b[0m 20ms/step - loss: 0.9"
    "\r\x1b[1m200/200\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m5s\x1b[0m 20ms/step - loss: 0.50\n"
)
KERAS = Pace("log", steps=400, steps_per_second=100.0, loss=0.4)


@pytest.mark.parametrize("text", [KERAS_2_RAW, KERAS_3_RAW], ids=["Keras 2", "Keras 3"])
def test_default_output_of_keras_is_recognised_by_hosts_and_client(text: str) -> None:
    """A host compares whole lines, the client the states of the bar."""
    line = text.removesuffix("\n")
    assert any_format().search(line) and format_of("keras").expression.search(line)
    found = of_lines(line.split("\r"), None)
    assert found and (found.steps, found.steps_per_second, found.loss) == (200, 50.0, 0.5)


@pytest.mark.parametrize(
    ("name", "text", "pace"),
    [
        ("tf_cnn_benchmarks", TF_CNN_BENCHMARKS, Pace("log", steps=100, examples_per_second=96.3, loss=7.503)),
        ("horovod", HOROVOD, Pace("log", examples_per_second=241.0, total=960.8, leader_only=True)),
        ("keras", KERAS_2, KERAS),
        ("keras", KERAS_2_BRIEF, KERAS),
        ("keras", KERAS_3, KERAS),
        ("keras", KERAS_3_BRIEF, KERAS),
    ],
)
def test_known_formats_are_recognised_and_read(name: str, text: str, pace: Pace) -> None:
    lines = text.splitlines()
    assert of_lines(lines, None) == of_lines(lines, FORMATS[name]) == pace
    sent = [line for line in [*lines, "read 100/200 files"] if any_format().search(line)]
    assert of_lines(sent, None) == pace, "the hosts send the lines that matter"
    assert "read 100/200 files" not in sent


#: What ends `evaluate` or `predict`.
NO_TRAINING = (
    "313/313 [==============================] - 1s 2ms/step - loss: 0.9 - accuracy: 0.7",
    "313/313 - 1s - loss: 0.9 - accuracy: 0.7 - 1s/epoch - 2ms/step",
    "313/313 ━━━━━━━━━━━━━━━━━━━━ 1s 2ms/step - accuracy: 0.7 - loss: 0.9",
    "313/313 - 1s - 2ms/step",
)


@pytest.mark.parametrize("other", NO_TRAINING)
@pytest.mark.parametrize("text", [KERAS_2, KERAS_2_BRIEF, KERAS_3, KERAS_3_BRIEF])
def test_lines_of_evaluate_and_predict_are_no_training(text: str, other: str) -> None:
    lines = [*text.splitlines(), other, other]
    if text is not KERAS_3_BRIEF:  # it lacks the lines that begin an epoch, as `fit` with one epoch does
        lines.insert(0, other)
    assert of_lines(lines, None) == of_lines(lines, FORMATS["keras"]) == KERAS
    for pattern in (any_format(), FORMATS["keras"].lines):
        assert of_lines([line for line in lines if pattern.search(line)], None) == KERAS


@pytest.mark.parametrize("raw", [KERAS_2_RAW, KERAS_3_RAW])
def test_lines_of_evaluate_are_no_training_in_the_default_output_of_keras(raw: str) -> None:
    """The bar of `evaluate` is rewritten too."""
    epoch, evaluated = raw.removesuffix("\n"), raw.removesuffix("\n").replace("200", "313")
    sent = [line for line in ("Epoch 1/2", epoch, "Epoch 2/2", epoch, evaluated) if any_format().search(line)]
    found = of_lines([state for line in sent for state in line.split("\r")], None)
    assert found and (found.steps, found.steps_per_second, found.loss) == (400, 50.0, 0.5)


def test_nothing_is_known_before_the_first_epoch_ends() -> None:
    assert of_lines([NO_TRAINING[0], "Epoch 1/2"], None) is None


def test_lines_of_several_formats_are_ambiguous() -> None:
    lines = [*KERAS_2.splitlines(), *HOROVOD.splitlines()]
    assert of_lines(lines, None) is None
    assert of_lines(lines, FORMATS["keras"]) == KERAS
    assert of_lines(["nothing", "of this"], None) is None


def test_a_pattern_of_the_job_file_reads_its_groups() -> None:
    kind = format_of(r"step (?P<step>\d+): (?P<examples_per_second>\S+)/s in (?P<step_time>\S+), loss (?P<loss>\S+)")
    lines = ["step 1: 10/s in 2s, loss nan", "step 5: 50/s in 400ms, loss 2.5", "step 9: 70/s in 600ms, loss 1e-2"]
    assert of_lines(lines, kind) == Pace("log", steps=9, examples_per_second=60.0, steps_per_second=2.0, loss=0.01)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("step (", "neither tf_cnn_benchmarks, horovod, keras nor a regular expression: "),
        ("tf_cnn", "has no named group for the progress of the task"),
        ("(?P<loss>x)", "has no named group for the progress of the task"),
        (
            "(?P<steps>x)",
            "progress of the task, such as (?P<step>[0-9]+); these groups are step, epoch, ",
        ),
    ],
)
def test_a_wrong_pattern_is_rejected(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        progress(text)


LINE = {"time": 130.0, "began": 100.0, "steps": 101, "examples": 3232, "seconds": 30.0, "first_step": 10.0,
        "first_steps": 1, "input_wait": 5.0}  # fmt: skip


def test_rates_leave_out_the_first_step() -> None:
    found = of_timings(json.dumps({**LINE, "steps": 50}) + "\n" + json.dumps(LINE) + "\n")
    assert found == Pace(
        "timings", steps=101, examples=3232, seconds=30.0, examples_per_second=160.0, steps_per_second=5.0,
        first_step=10.0, input_wait=0.25,
    )  # fmt: skip


def test_rates_leave_out_the_evaluations() -> None:
    found = of_timings(json.dumps({**LINE, "seconds": 40.0, "evaluation": 10.0}))
    assert found == Pace(
        "timings", steps=101, examples=3232, seconds=40.0, examples_per_second=160.0, steps_per_second=5.0,
        first_step=10.0, input_wait=0.25,
    )  # fmt: skip


def test_unknown_timings_stay_unknown() -> None:
    led = {**LINE, "examples": None, "first_step": None, "first_steps": 0, "input_wait": None}
    assert of_timings(json.dumps(led)) == Pace("timings", steps=101, seconds=30.0, steps_per_second=101 / 30)
    only_first = {**LINE, "steps": 1, "examples": 32, "seconds": 10.0, "input_wait": 0.0}
    assert of_timings(json.dumps(only_first)) == Pace("timings", steps=1, examples=32, seconds=10.0, first_step=10.0)


@pytest.mark.parametrize(
    "line", ["", "[]", "{", "null", '{"steps": 1}', json.dumps({**LINE, "seconds": -1}),
             json.dumps({**LINE, "steps": "many"}), json.dumps({**LINE, "seconds": float("inf")}), "[" * 5000]
)  # fmt: skip
def test_a_task_cannot_confuse_the_report_with_its_timings(line: str) -> None:
    assert of_timings(line) is None
    good = of_timings(json.dumps(LINE))
    assert good is not None
    assert of_timings(f"{json.dumps(LINE)}\n{line}\n") == good
