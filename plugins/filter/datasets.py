"""Filters for the entries of datasets. See tfctl/provision/decide/datasets.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ansible_collections.tfctl.cluster.plugins.plugin_utils import own_tfctl  # noqa: F401

from tfctl.provision.decide import datasets
from tfctl.schema import Plain


class FilterModule:
    """``datasets`` completes the entries; ``dataset_faults`` returns what is wrong with them."""

    def filters(self) -> dict[str, Callable[[Sequence[Plain]], object]]:
        return {
            "datasets": lambda entries: [datasets.completed(entry) for entry in entries],
            "dataset_faults": lambda entries: [found for entry in entries for found in datasets.faults(entry)],
        }
