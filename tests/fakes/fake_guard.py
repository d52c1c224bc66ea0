"""The guard of a job on a tree, or its session as root: `fake_guard.py TREE ACCOUNT run|root JOB`.

The hosts have invented addresses, and all of them are this machine: the network here leads there, unless the tree has a
file `cut-off`. The guard keeps samples if the tree has a file `samples`. The tree shows the cgroup of the process as
the kernel would.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import sys
from pathlib import Path
from typing import Any

from fake_manager import Manager
from fake_system import enter_cgroup, fake_system

tree, account, verb, job = sys.argv[1:]
enter_cgroup(tree, f"tfctlguard-{job}.service" if verb == "run" else f"tfctlguardroot-{job}@1-2-3.service")

if verb == "root":
    from tfctl.node.guard_session import main
else:
    from tfctl.node.guard import sampling
    from tfctl.node.guard.__main__ import main

    if not Path(tree, "samples").exists():  # few tests need samples, for which the fake journalctl looks all the time
        sampling.BEGIN_S = 1e6
    limit = (Manager(tree).file(f"tfctlguard-{job}.service") or {}).get("LimitNOFILE")
    if limit is not None:  # as systemd sets it, and no higher than this machine allows
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, 2 * (int(limit) if most < 0 else min(int(limit), most),))
    connect = asyncio.open_connection

    async def to_this_machine(_address: str, port: int, **more: Any) -> Any:
        if Path(tree, "cut-off").exists():
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return await connect("127.0.0.1", port, **more)

    asyncio.open_connection = to_this_machine  # type: ignore[assignment]

sys.exit(main([job], fake_system(tree, account, 30.0)))
