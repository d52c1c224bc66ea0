"""CPython trees of the control machine, packed for hosts: what tfctl/provision/python_tree.py says of each."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import platformdirs
from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from tfctl.errors import TfctlError
from tfctl.provision.python_tree import pack

DOCUMENTATION = """
name: tfctl_python_tree
short_description: CPython trees of the control machine, packed
description:
  - Packs each tree once, and again when a file of it has changed.
options:
  _terms: {description: The trees' directories., required: true}
"""


class LookupModule(LookupBase):
    def run(self, terms, **_):
        cache = platformdirs.user_cache_path("tfctl") / "pythons"
        try:
            trees = [asdict(pack(Path(str(term)), cache)) for term in terms]
        except TfctlError as error:
            raise AnsibleError(f"{error.message}: {error.remedy}") from None
        return [{**tree, "glibc": list(tree["glibc"]), "needs": list(tree["needs"])} for tree in trees]
