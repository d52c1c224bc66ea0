"""A job on this machine alone, every task a child process: for writing and debugging the script.

Nothing here needs ssh, systemd, root or Linux.
"""
