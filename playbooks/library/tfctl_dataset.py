#!/usr/bin/python
"""Check data sets on a host, and install one."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_datasets import Dataset
from ansible.module_utils.tfctl_install import ModuleFailed, alone, finish

DOCUMENTATION = """
module: tfctl_dataset
short_description: Check and install data sets
description:
  - C(checked) changes nothing. It finds the data sets that are missing, or whose files have changed.
  - C(installed) downloads a data set from O(source), unless its archive is on the host, compares its hash, unpacks it
    beside its final place and moves it there.
options:
  datasets:
    description: Entries of tfctl_datasets, as the filter of that name completes them.
    type: list
    elements: dict
    required: true
  state: {type: str, required: true, choices: [checked, installed], description: What to do.}
  source:
    {type: str, default: '', description: "For installed: a URL, also file://. If it is empty, the data set's own."}
  server: {type: str, default: '', description: "For installed: the host from which the archive has been copied."}
  reason: {type: str, default: '', description: "For installed: why it could not be copied."}
"""

RETURN = """
missing: {type: list, elements: str, returned: 'with C(checked)', description: Data sets to install.}
archived: {type: list, elements: str, returned: 'with C(checked)', description: Those whose archive is on the host.}
"""


def main() -> None:
    text = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            "datasets": {"type": "list", "elements": "dict", "required": True},
            "state": {"type": "str", "required": True, "choices": ["checked", "installed"]},
            "source": text,
            "server": text,
            "reason": text,
        },
        supports_check_mode=True,
    )
    given = module.params
    datasets = [Dataset(entry) for entry in given["datasets"]]
    if given["state"] == "checked":
        finish(module, lambda: checked(datasets, module.check_mode))
    finish(module, lambda: installed(datasets[0], given))


def checked(datasets: list[Dataset], check_mode: bool) -> dict[str, object]:
    differences = {dataset.name: dataset.difference() for dataset in datasets}
    archived = [dataset.name for dataset in datasets if dataset.archive.exists()]
    shown = "".join(f"{sentence}\n" for sentence in differences.values() if sentence)
    diff = [{"before_header": "found", "after_header": "wanted", "before": shown, "after": ""}] if shown else []
    missing = [name for name, sentence in differences.items() if sentence]
    return {"changed": bool(shown) and check_mode, "missing": missing, "archived": archived, "diff": diff}


def installed(dataset: Dataset, given: dict[str, Any]) -> dict[str, object]:
    server = given["server"]
    if server and not dataset.archive.exists():
        if given["reason"]:
            raise ModuleFailed(given["reason"], f"check that {{host}} reaches {server} at tfctl_ports, then try again")
        message = f"{server}, from which {dataset.name} is copied, does not have it"
        raise ModuleFailed(message, f"correct the error of {server} first")
    with alone(dataset.place.with_name(f".{dataset.name}.lock"), f"installs the data set {dataset.name}"):
        if dataset.difference():  # another run may have installed it meanwhile
            dataset.install(given["source"] or dataset.source)
    return {"changed": True}


if __name__ == "__main__":
    main()
