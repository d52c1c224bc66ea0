"""Provisioning on the control machine: what each host is given, the Ansible run that installs it, and its results."""
