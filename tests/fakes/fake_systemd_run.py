"""A fake systemd-run: `fake_systemd_run.py TREE --OPTION… -- WORD…` runs the words without restrictions, and waits.

It notes the options in TREE/systemd-run.log.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

tree, *words = sys.argv[1:]
place = words.index("--")
with Path(tree, "systemd-run.log").open("a") as log:
    log.write(" ".join(words[:place]) + "\n")
sys.exit(subprocess.run(words[place + 1 :], check=False).returncode)
