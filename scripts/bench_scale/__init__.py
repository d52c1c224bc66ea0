"""Measure what tfctl costs per host (`scripts/bench scale`), on hosts that are imitated on this machine.

`rig.py` starts `server.py` in processes of their own: ssh servers on loopback addresses, whose hosts (`hosts.py`,
`journal.py`) answer the protocol of tfctl/node/wire/. So only the client is measured, by `measure.py` and
`following.py`. `peers.py` has the other programs that are measured beside tfctl, `table.py` prints the results, and
`command.py` is the command line.
"""
