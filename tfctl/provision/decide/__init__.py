"""Decisions: what a host gets, and why, from its facts and the inventory's settings. Pure functions over frozen data.

The action plugins in playbooks/ call them, possibly in an Ansible of the user's own. So this package and what it
imports need only the standard library and PyYAML.
"""
