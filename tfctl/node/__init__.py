"""What runs on a node, as root, behind one line of sudoers. Standard library only, Python 3.9 and newer.

Only `names` and `wire` may be imported by the rest of tfctl. On a node this directory is copied as it is, so imports
between its files are relative.
"""
