"""Measure what tfctl costs per host (`scripts/bench scale`), on hosts that are imitated on this machine.

`rig.py` starts `server.py` in processes of their own: ssh servers on loopback addresses, whose hosts (`hosts.py`) answer
the protocol of tfctl/node/wire.py. So only the client is measured, by `measure.py` and `following.py`. `plan.py` says
what is measured, `peers.py` which other programs are measured beside tfctl, and `table.py` prints the results.
"""
