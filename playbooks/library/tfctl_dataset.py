#!/usr/bin/python
"""Check a data set on a host, fetch it from a URL or another host, and serve it to others."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_datasets import Dataset
from ansible.module_utils.tfctl_fault import INVENTORY, fail, fault
from ansible.module_utils.tfctl_machine import Failed, run

DOCUMENTATION = """
module: tfctl_dataset
short_description: Look at data sets, bring one, give it to other hosts
description:
  - C(look) changes nothing. It returns the names of those that are C(missing), and of those whose archive is here and
    can be C(given). C(bring) has one from O(source), compares its hash, opens it beside its place and moves it there.
  - C(give) has its archive fetched by whoever knows the path in the C(url) that it returns; until C(keep), or an hour.
options:
  datasets: {type: list, elements: dict, required: true, description: Entries of tfctl_datasets.}
  state: {type: str, required: true, choices: [look, bring, give, keep], description: What to do.}
  source: {type: str, default: '', description: "For bring: an address, also file://. Empty, the data set's own."}
  giver: {type: str, default: '', description: "For bring: the host that O(source) is of, which is empty if it failed."}
  host: {type: str, default: '', description: "For give: where the others reach this host."}
  ports:
    type: list
    elements: int
    default: [2222, 2299]
    description: "For give: the first and the last port of jobs. The last free one is used."
"""

UNIT = "tfctl_give.service"  # a name of the form tfctl-*.service would look like a job's
#: One file, at one path.
GIVE = """
import http.server, shutil, sys
port, path, file = int(sys.argv[1]), sys.argv[2], sys.argv[3]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != path:
            return self.send_error(404)
        with open(file, "rb") as source:
            self.send_response(200)
            self.end_headers()
            shutil.copyfileobj(source, self.wfile, 1 << 20)
http.server.ThreadingHTTPServer(("", port), Handler).serve_forever()
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "datasets": {"type": "list", "elements": "dict", "required": True},
            "state": {"type": "str", "required": True, "choices": ["look", "bring", "give", "keep"]},
            "source": {"type": "str", "default": ""},
            "giver": {"type": "str", "default": ""},
            "host": {"type": "str", "default": ""},
            "ports": {"type": "list", "elements": "int", "default": [2222, 2299]},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    datasets = [Dataset(entry) for entry in wanted["datasets"]]
    try:
        told = {"look": look, "bring": bring, "give": give, "keep": keep}[wanted["state"]](module, datasets)
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or datasets[0].place}: {error.strerror or error}", invocation={})
    module.exit_json(invocation={}, **told)


def look(module, datasets):
    faults = [fault(*found, INVENTORY) for dataset in datasets for found in dataset.faults()]
    if faults:
        fail(module, faults)
    wrong = {dataset.name: dataset.wrong() for dataset in datasets}
    given = [dataset.name for dataset in datasets if dataset.archive.exists()]
    shown = "".join(f"{sentence}\n" for sentence in wrong.values() if sentence)
    diff = [{"before_header": "wrong", "after_header": "right", "before": shown, "after": ""}] if shown else []
    changed = bool(shown) and module.check_mode
    return {"changed": changed, "missing": [name for name in wrong if wrong[name]], "given": given, "diff": diff}


def bring(module, datasets):
    giver = module.params["giver"]
    if giver and not module.params["source"]:
        raise Failed(f"{giver}, from which {datasets[0].name} was to come, has not got it", f"see what {giver} says")
    datasets[0].bring(module.params["source"] or datasets[0].source, direct=bool(giver))
    return {"changed": True}


def give(module, datasets):
    """Serve the archive as an unprivileged user on the first free port. First remove leftovers of an earlier run."""
    keep(module, datasets)
    path, port = f"/{datasets[0].sha256}", free_port(*module.params["ports"])
    words = ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", "--property=DynamicUser=yes"]
    words += ["--property=RuntimeMaxSec=3600", sys.executable, "-I", "-c", GIVE, port, path, datasets[0].archive]
    run(*words)
    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    host = module.params["host"]
    return {"changed": False, "url": f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"}


def keep(_module, _datasets):
    subprocess.run(["systemctl", "stop", UNIT], capture_output=True, timeout=60, check=False)
    return {"changed": False}


def free_port(first, last):
    """Return the last free port of a range. Raises Failed."""
    for port in range(last, first - 1, -1):
        with socket.socket() as tried:
            try:
                tried.bind(("", port))
                return port
            except OSError:
                continue
    raise Failed(f"no port of {first}-{last} is free to give the data set to other hosts", "wait for the end of a job")


if __name__ == "__main__":
    main()
