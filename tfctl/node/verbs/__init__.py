"""What the node part does: one module per verb, each with a function `run` that serves one request.

`tfctl.node.__main__` imports the module whose name the request gives: a key of `wire.REQUESTS`. `deadline` is not
among these: only systemd asks for it, with arguments. Verbs import what they share from `tfctl.node`, never from one
another.
"""
