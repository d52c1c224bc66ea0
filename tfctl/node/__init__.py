"""The node part: runs on a node as root, through one line of sudoers. Standard library only, Python 3.9 or newer.

The rest of tfctl may import only `exits`, `judge`, `names` and `wire`. The directory is copied to a node unchanged, so
imports between its files are relative.
"""
