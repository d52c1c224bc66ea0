"""The node part on a tree, with the stand-ins for systemctl and journalctl: `fake_node.py TREE ACCOUNT SILENCE WORD…`.

The words are the arguments of tfctl-node.
"""

from __future__ import annotations

import sys

from fake_system import fake_system

from tfctl.node.__main__ import main

tree, account, silence, *words = sys.argv[1:]
sys.exit(main(fake_system(tree, account, float(silence)), words))
