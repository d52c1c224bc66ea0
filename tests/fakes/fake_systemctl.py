"""A service manager in one directory, spoken to as systemctl: `fake_systemctl.py TREE show|start|stop|kill|…`.

Enough of systemd to start, restart, kill and forget units for real. Each running unit has a supervisor process, as
PID 1 would be: it starts the command, keeps its output in the tree's journal, writes cgroup.procs, runs ExecStartPre=,
ExecStop= and ExecStopPost=, and restarts. A timer (OnActiveSec= alone) has one too, which waits and then runs the
service of the same name (systemd.timer(5)). State: TREE/manager/UNIT.state. Units are read from
TREE/run/systemd/system. TREE/manager/calls.log has the calls.

The code is in fake_manager and fake_supervisor, because Python caches the bytecode of modules only, not of a program.
"""

import sys

from fake_manager import main

sys.exit(main())
