"""The filters apt_source_file and apt_components, of the files of apt's sources that slurp has read."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision.decide import apt_sources


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {
            "apt_source_file": lambda read, uri: apt_sources.holder(contents(read), uri),
            "apt_components": lambda read, listed, components, own_file: apt_sources.missing_components(
                listed, contents(read), components, own_file
            ),
        }


def contents(read: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the text of files by path."""
    return {each["source"]: base64.b64decode(each["content"]).decode("utf-8", "replace") for each in read}
