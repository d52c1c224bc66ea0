"""Run a job on this machine alone, every task as a child process, to write and debug the script.

Nothing here needs ssh, systemd, root or Linux.
"""
