"""Which commands leave a shell between systemd and the program, and how such tasks are ended."""

from __future__ import annotations

import shlex

import pytest

from tfctl.model import shell
from tfctl.model.host import Host, Ssh
from tfctl.model.task import Slot


@pytest.mark.parametrize(
    ("command", "mode"),
    [
        ("python train.py", "mixed"),
        ("sh -c 'python train.py'", "control-group"),
        ("/bin/bash -c 'source env; python train.py; echo done'", "control-group"),
        ("bash -e -o pipefail -c 'python train.py | tee log'", "control-group"),
        ("bash -euo pipefail -c 'source env; exec python train.py'", "mixed"),
        ("sh -c 'exec python train.py >log 2>&1'", "mixed"),
        ("sh -c 'exec 2>&1; python train.py'", "control-group"),
        ("sh -c 'exec 2>&1'", "control-group"),
        ("sh -c 'cd x && exec python train.py'", "mixed"),
        ("sh -c 'cd x\nexec python train.py\n'", "mixed"),
        ("sh -c 'exec python train.py\necho done'", "control-group"),
        ("sh -c 'test {role} = ps && exec sleep 600; python train.py'", "control-group"),
        ("sh -c 'trap \"kill $!\" TERM; python train.py & wait; wait'", "mixed"),
        ("sh", "control-group"),
        ("bash run --fast -c", "control-group"),
        ("./run.sh", "control-group"),
        ("python run.sh", "mixed"),
    ],
)
def test_kill_mode_is_control_group_where_a_shell_remains_the_main_process(command: str, mode: str) -> None:
    assert shell.kill_mode(shlex.split(command)) == mode


@pytest.mark.parametrize(
    ("command", "remarked"),
    [
        ("sh -c 'python train.py'", True),
        ("bash -lc 'python train.py'", True),
        ("sh -c 'exec python train.py'", False),
        ("sh -c 'trap : TERM; python train.py'", False),
        ("bash run.sh -c", False),
        ("python -c 'pass'", False),
    ],
)
def test_a_remark_asks_for_exec_where_an_inline_script_has_none(command: str, remarked: bool) -> None:
    slot = Slot("worker", 0, Host("node1", Ssh("node1")), None, tuple(shlex.split(command)), {}, "none")
    found = shell.remarks([slot, slot])
    assert len(found) == int(remarked)
    assert all("write `exec` before the last command" in remark for remark in found)
