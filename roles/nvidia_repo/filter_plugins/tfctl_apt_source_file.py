"""The filter tfctl_apt_source_file: which of the files that slurp has read contains an entry for a repository."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

if find_spec("tfctl") is None:  # Ansible has an environment of its own
    # A checkout, or the directory of the installed package.
    sys.path.append(next(str(each) for each in Path(__file__).resolve().parents if (each / "tfctl/errors.py").exists()))

from tfctl.provision.decide import apt_sources

DOCUMENTATION = """
name: tfctl_apt_source_file
short_description: Find the file of apt's package sources that contains a repository
description:
  - Returns the path of the first file with an enabled entry for the repository, or an empty string.
options:
  _input: {description: Results of the module slurp., type: list, elements: dict, required: true}
  uri: {description: The URI of the repository., type: str, required: true}
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[[Sequence[Mapping[str, str]], str], str]]:
        return {"tfctl_apt_source_file": holder}


def holder(read: Sequence[Mapping[str, str]], uri: str) -> str:
    files = {each["source"]: base64.b64decode(each["content"]).decode("utf-8", "replace") for each in read}
    return apt_sources.holder(files, uri)
