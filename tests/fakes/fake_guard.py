"""The guard of a job on a tree, or its session as root: `fake_guard.py TREE ACCOUNT run|root JOB`.

The hosts have invented addresses, and all of them are this machine: the network here leads there. The tree shows the
cgroup of the process as the kernel would.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from fake_system import enter_cgroup, fake_system

tree, account, verb, job = sys.argv[1:]
enter_cgroup(tree, f"tfctlguard-{job}.service" if verb == "run" else f"tfctlguardroot-{job}@1-2-3.service")

if verb == "root":
    from tfctl.node.guard_session import main
else:
    from tfctl.node.guard.__main__ import main

    connect = asyncio.open_connection

    def to_this_machine(_address: str, port: int, **more: Any) -> Any:
        return connect("127.0.0.1", port, **more)

    asyncio.open_connection = to_this_machine  # type: ignore[assignment]

sys.exit(main([job], fake_system(tree, account, 30.0)))
