"""A process of a unit that uses the local socket of a guard: `fake_guard_client.py TREE UNIT JOB`.

It sends what it reads from stdin, and prints what it is answered.
"""

from __future__ import annotations

import os
import select
import socket
import sys

from fake_system import enter_cgroup

tree, unit, job = sys.argv[1:]
enter_cgroup(tree, unit)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(f"{tree}/run/tfctl/guard/{job}.sock")
    sources = [0, connection.fileno()]
    while connection.fileno() in sources:
        for source in select.select(sources, [], [])[0]:
            data = os.read(source, 65536)
            if not data:
                sources.remove(source)
            elif source == 0:
                connection.sendall(data)
            else:
                os.write(1, data)
