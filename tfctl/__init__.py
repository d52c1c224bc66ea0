"""Provision plain Linux machines and launch distributed TensorFlow on them, over ssh and systemd."""

__version__ = "0.1.0"
