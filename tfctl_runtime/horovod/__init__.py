"""Launchers for Horovod's ranks: where they meet, and over which interface. Standard library only; any Horovod."""
