"""The stdout of commands on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

SCRIPT = """
import shutil
from tfctl.cli import stdout
stdout.install()
print(shutil.get_terminal_size().columns)
"""


def test_commands_see_how_wide_the_terminal_is() -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 173, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    subprocess.run([sys.executable, "-c", SCRIPT], stdout=terminal, env=variables, check=True, timeout=60)
    os.close(terminal)
    assert os.read(controller, 100).split() == [b"173"]
    os.close(controller)
