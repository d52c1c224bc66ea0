"""Run one proof in a child and report its outcome in one line, which `tfctl verify` reads from the log.

A proof may end in ways that only a parent can report: an illegal instruction, a hang. Needs only the standard library
and Python 3.6.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from result import MARK, SO_FAR

LAST_LINES = 12


def main():
    """Run `main.py PROOF SECONDS [fail-fast]` and print the outcome.

    With ``fail-fast``, a failed proof exits with 1, so that the other hosts are stopped instead of waiting for this
    one. A host that is stopped reports what it knows so far.
    """
    proof, seconds = sys.argv[1], float(sys.argv[2])
    signal.signal(signal.SIGTERM, stop)
    result = run(proof, seconds)
    sys.stdout.write(MARK + json.dumps(result, sort_keys=True) + "\n")
    return 0 if result["ok"] or "fail-fast" not in sys.argv else 1


class TaskStopped(Exception):
    """tfctl stops this task."""


def stop(*_):
    raise TaskStopped


def run(proof, seconds):
    here = Path(__file__).resolve().parent
    child = subprocess.Popen(
        [sys.executable, "-u", str(here / (proof + ".py"))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output = child.communicate(timeout=seconds)[0]
    except (subprocess.TimeoutExpired, TaskStopped) as reason:
        os.killpg(child.pid, signal.SIGKILL)
        output = child.communicate()[0]
        if isinstance(reason, TaskStopped):
            return dict(so_far(output.decode("utf-8", "replace")), ok=False, stopped=True, message="it was stopped")
        return failed(f"{proof} ran longer than {seconds:.0f} s and was killed", output)
    text = output.decode("utf-8", "replace")
    reports = marked(text, MARK)
    if reports:
        return dict(so_far(text), **reports[-1])
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name
        why = {
            "SIGILL": "this processor lacks an instruction that TensorFlow was built with (AVX)",
            "SIGKILL": "killed: memory probably ran out (see dmesg)",
        }.get(name, "it crashed")
        return failed(f"ended by {name}: {why}", output)
    return failed(f"ended with exit code {child.returncode} and reported nothing", output)


def failed(message, output):
    text = output.decode("utf-8", "replace")
    lines = [line for line in text.strip().splitlines() if not line.startswith(SO_FAR)][-LAST_LINES:]
    return dict(so_far(text), ok=False, message="\n".join([message, *lines]))


def so_far(text):
    return {name: value for details in marked(text, SO_FAR) for name, value in details.items()}


def marked(text, mark):
    return [json.loads(line[len(mark) :]) for line in text.splitlines() if line.startswith(mark)]


if __name__ == "__main__":
    sys.exit(main())
