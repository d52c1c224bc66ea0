"""A start in which something goes wrong: it is said where, and nothing is left of it on any host, whoever helps."""

from __future__ import annotations

import random
import signal
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jobs import Jobs

FOUR = "command: sleep 600\nroles: {worker: 4}\n"

#: The moments of a start at which its client can go, each as the lines that stop there.
PHASES = {
    "connected": "talks.open_node = lambda *_: gone()",
    "hello": "start._place = lambda *_: gone()",
    "plan sent": "after(talks.NodeChannel, 'send', lambda kind, _: kind == 'plan')",
    "code half sent": """
        whole = talks.NodeChannel.send_raw
        def half(channel, data):
            large = len(data) > 100_000
            whole(channel, data[: len(data) // 2] if large else data)
            if large:
                gone()
        talks.NodeChannel.send_raw = half
    """,
    "reserved on some": "after(talks.Talks, '_each', lambda hosts, _: list(hosts) == ['node1'])",
    "reserved": "start._require_shared = lambda *_: gone()",
    "go told to some": "after(talks.NodeChannel, 'send', lambda kind, _: kind == 'go')",
    "started": "talks.Talks.keep = lambda _: gone()",
}
GONE = """
def gone():
    os.kill(os.getpid(), signal.{signal})
    time.sleep(60)

def after(owner, name, fits):
    real = getattr(owner, name)
    def done(self, *words):
        found = real(self, *words)
        if fits(*words):
            gone()
        return found
    setattr(owner, name, done)
"""


@pytest.fixture
def four(jobs: Jobs) -> Path:
    """A job of a task on each host, with code of some size."""
    file = jobs.file("faulty", FOUR)
    (file.parent / "data").write_bytes(random.Random(0).randbytes(2**20))
    return file


def refused(jobs: Jobs, file: Path, code: int, *said: str) -> str:
    """What it says on stderr when it is refused with all of that, and leaves nothing."""
    with jobs.leaving_nothing():
        done = jobs("start", file)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    for text in said:
        assert text in done.stderr
    return done.stderr


@contextmanager
def changed(jobs: Jobs, host: str, do: str, undo: str) -> Iterator[None]:
    """Shell lines, by root, before and after."""
    jobs.root(host, do)
    try:
        yield
    finally:
        jobs.root(host, undo)


# -- the client goes


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT", "SIGTERM"])
def test_a_client_that_goes_before_keep_leaves_nothing(how: str, phase: str, jobs: Jobs, four: Path) -> None:
    with jobs.leaving_nothing():
        process = jobs.begin_patched(GONE.format(signal=how) + textwrap.dedent(PHASES[phase]), "start", four)
        out, err = process.communicate(timeout=55)
    assert out == ""
    assert "Traceback" not in err
    if how == "SIGKILL":
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130, err
        assert "interrupted" in err
        assert phase == "connected" or "nothing of the job runs" in err
