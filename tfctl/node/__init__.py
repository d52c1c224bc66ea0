"""The node part: runs on a node as root, through one line of sudoers. Standard library only, Python 3.9 or newer.

    __main__.py   read a request and pass it to its verb
    verbs/        what the node part does, one module per verb
    wire/         the protocol between client and node
    guard/        the guard of a job, which runs as user tfctl-guard; root's part of it: guards.py, guard_session.py
    the rest      what the verbs share

The rest of tfctl may import only `exits`, `judge`, `names` and `wire`. The directory is copied to a node unchanged, so
imports between its files are relative.
"""
