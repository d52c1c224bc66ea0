"""The entry of the `tfctl` command. The completion of command lines has no time to import the commands."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, or print the candidates for its completion."""
    if sys.argv[1:2] == ["__complete"]:
        from tfctl.cli import candidates

        code = candidates.main(sys.argv[2:])
        sys.stdout.flush()
        os._exit(code)
    from tfctl.cli import interrupts

    interrupts.install()
    from tfctl.cli.main import main as run

    run()
