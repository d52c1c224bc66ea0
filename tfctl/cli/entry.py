"""The entry of the `tfctl` command. The completion of command lines has no time to import the commands."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

#: For how long (s) nothing is collected. Almost every command ends within this time.
_SHORT_S = 60.0
#: Objects made between two collections of a command that lasts longer. Python's 700 are what one answer consists of.
_OBJECTS = 50_000


def main() -> NoReturn:
    """Run the command line, or print the candidates for its completion."""
    gc.disable()
    # With a umask such as 0777, the user could not use the files that tfctl and Ansible create.
    os.umask(os.umask(0o077) & 0o077)
    if sys.argv[1:2] == ["__complete"]:
        from tfctl.cli import candidates

        code = candidates.main(sys.argv[2:])
        sys.stdout.flush()
        os._exit(code)
    collect_later()
    from tfctl.cli import interrupts

    interrupts.install()
    from tfctl.cli.main import main as run

    run()


def collect_later(seconds: float = _SHORT_S) -> None:
    """Collect no garbage for so long, then rarely, and never what exists by then.

    Python frees most objects without its garbage collector, which finds cycles only. While many hosts answer, it runs
    hundreds of times over all answers so far, and all threads wait for it. A command that follows a job for hours must
    collect cycles, but not look again and again at modules and at what all hosts have answered at first.
    """
    import threading

    gc.disable()
    gc.set_threshold(_OBJECTS)

    def collect() -> None:
        gc.freeze()
        gc.enable()

    timer = threading.Timer(seconds, collect)
    timer.daemon = True
    timer.start()
