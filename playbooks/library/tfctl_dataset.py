#!/usr/bin/python
"""Check data sets on a host, install one from a URL or another host, and serve its archive to other hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_datasets import Dataset
from ansible.module_utils.tfctl_fault import INVENTORY, fail, fault
from ansible.module_utils.tfctl_install import Failed
from ansible.module_utils.tfctl_share import serve, stop

DOCUMENTATION = """
module: tfctl_dataset
short_description: Check, install and serve data sets
description:
  - C(checked) changes nothing. It returns the names of the data sets that are C(missing), or whose files have changed,
    and of those that are C(archived), because their archive is on the host.
  - C(installed) downloads a data set from O(source), unless its archive is on the host, compares its hash, unpacks it
    beside its final place and moves it there.
  - C(served) serves the archive at the C(url) that it returns, until C(stopped), or for an hour. The path of the URL
    contains the hash of the archive.
options:
  datasets: {type: list, elements: dict, required: true, description: Entries of tfctl_datasets.}
  state: {type: str, required: true, choices: [checked, installed, served, stopped], description: What to do.}
  source:
    {type: str, default: '', description: "For installed: a URL, also file://. If it is empty, the data set's own."}
  server: {type: str, default: '', description: "For installed: the host that serves O(source), empty if it failed."}
  host: {type: str, default: '', description: "For served: the name or address of this host in the C(url)."}
  ports:
    type: list
    elements: int
    default: [2222, 2299]
    description: "For served: the first and the last port of jobs. The last free one is used."
"""

#: What a state returns to Ansible.
Result = dict[str, Any]

UNIT = "tfctl_dataset.service"  # tfctl-*.service are the units of jobs


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "datasets": {"type": "list", "elements": "dict", "required": True},
            "state": {"type": "str", "required": True, "choices": [*STATES]},
            "source": {"type": "str", "default": ""},
            "server": {"type": "str", "default": ""},
            "host": {"type": "str", "default": ""},
            "ports": {"type": "list", "elements": "int", "default": [2222, 2299]},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    datasets = [Dataset(entry) for entry in wanted["datasets"]]
    try:
        result = STATES[wanted["state"]](module, datasets)
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or datasets[0].place}: {error.strerror or error}", invocation={})
    module.exit_json(invocation={}, **result)


def checked(module: AnsibleModule, datasets: list[Dataset]) -> Result:
    faults = [fault(*found, INVENTORY) for dataset in datasets for found in dataset.faults()]
    if faults:
        fail(module, faults)
    differences = {dataset.name: dataset.difference() for dataset in datasets}
    archived = [dataset.name for dataset in datasets if dataset.archive.exists()]
    shown = "".join(f"{sentence}\n" for sentence in differences.values() if sentence)
    diff = [{"before_header": "found", "after_header": "wanted", "before": shown, "after": ""}] if shown else []
    missing = [name for name, sentence in differences.items() if sentence]
    return {"changed": bool(shown) and module.check_mode, "missing": missing, "archived": archived, "diff": diff}


def installed(module: AnsibleModule, datasets: list[Dataset]) -> Result:
    server, (dataset,) = module.params["server"], datasets
    if server and not module.params["source"]:
        message = f"{server}, from which {dataset.name} is copied, does not have it"
        raise Failed(message, f"correct the error of {server} first")
    dataset.install(module.params["source"] or dataset.source, direct=bool(server))
    return {"changed": True}


def served(module: AnsibleModule, datasets: list[Dataset]) -> Result:
    """Serve the archive to other hosts."""
    (dataset,) = datasets
    url = serve(UNIT, dataset.archive.parent, module.params["host"], module.params["ports"])
    return {"changed": False, "url": f"{url}/{dataset.sha256}"}


def stopped(_module: AnsibleModule, _datasets: list[Dataset]) -> Result:
    stop(UNIT)
    return {"changed": False}


STATES: dict[str, Callable[[AnsibleModule, list[Dataset]], Result]] = {
    "checked": checked,
    "installed": installed,
    "served": served,
    "stopped": stopped,
}


if __name__ == "__main__":
    main()
