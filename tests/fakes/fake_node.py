"""The node part on a tree, with the stand-ins for systemctl and journalctl: `fake_node.py TREE ACCOUNT SILENCE WORD…`.

The words are the arguments of tfctl-node.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tfctl.node.__main__ import main  # noqa: E402
from tfctl.node.system import System  # noqa: E402

tree, account, silence, *words = sys.argv[1:]

with contextlib.suppress(FileNotFoundError):  # how many seconds the clock of this host is ahead
    ahead, real_time = float(Path(tree, "clock").read_text()), time.time
    time.time = lambda: real_time() + ahead


def fake(name: str) -> tuple[str, ...]:
    return sys.executable, "-S", str(HERE / name), tree


sys.exit(
    main(
        System(
            prefix=tree,
            account=account,
            systemctl=fake("fake_systemctl.py"),
            journalctl=fake("fake_journalctl.py"),
            nvidia_smi=(f"{tree}/usr/bin/nvidia-smi",),
            silence=float(silence),
            grace=1.0,
        ),
        words,
    )
)
