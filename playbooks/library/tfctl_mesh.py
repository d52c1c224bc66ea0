#!/usr/bin/python
"""Set up ssh for one user between all hosts: a key on each host, and the hosts that it may connect to."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.tfctl_machine import Failed, converge

DOCUMENTATION = """
module: tfctl_mesh
short_description: Let one user reach the other hosts by ssh
description:
  - Runs as that user, and writes nothing outside its C(~/.ssh), where lines of others stay.
  - C(key) makes a key pair where there is none, and returns C(public) and C(host_keys). C(told) writes what those of
    O(members) are; of O(silent), what was written before stays. C(dial) runs a command on each of them.
options:
  state: {type: str, required: true, choices: [key, told, dial], description: What to do.}
  port: {type: int, default: 22, description: "For key: where this host's sshd listens."}
  members: {type: list, elements: dict, default: [], description: "Of each name, address, port, public, host_keys."}
  silent: {type: list, elements: str, default: [], description: Hosts of the inventory that said nothing this time.}
"""

KEY, KNOWN, CONFIG = ".ssh/id_tfctl", ".ssh/known_hosts_tfctl", ".ssh/config_tfctl"
INCLUDE = "Include config_tfctl"
CONFIG_OF = """Host {name} {address}
    HostName {address}
    Port {port}
    IdentityFile ~/.ssh/id_tfctl
    UserKnownHostsFile ~/.ssh/known_hosts_tfctl
    StrictHostKeyChecking yes
    # {name}
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": ["key", "told", "dial"]},
            "port": {"type": "int", "default": 22},
            "members": {"type": "list", "elements": "dict", "default": []},
            "silent": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    home, wanted = Path.home(), module.params
    if os.geteuid() == 0:
        module.fail_json(msg="a mesh of root's is none of tfctl's business")
    try:
        if wanted["state"] == "key":
            told = key(home, wanted["port"], not module.check_mode)
        elif wanted["state"] == "told":
            entries = entries_for(home, wanted["members"], wanted["silent"])
            told = {"changed": bool([change.what for change in converge(entries, not module.check_mode)])}
        else:
            told = dial(wanted["members"])
    except Failed as failed:
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    module.exit_json(invocation={}, **told)


def key(home, port, act):
    """Return the public key and host keys. Make a key unless there is a working one."""
    path = home / KEY
    there = path.is_file() and ends_well("ssh-keygen", "-y", "-P", "", "-f", str(path))
    if not there and act:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        for old in (path, path.with_suffix(".pub")):
            old.unlink(missing_ok=True)
        if not ends_well("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tfctl", "-f", str(path)):
            raise Failed(f"ssh-keygen made no key at {path}", "install openssh-client on {host}")
    public = said("ssh-keygen", "-y", "-P", "", "-f", str(path)).split()[:2]
    scanned = said("ssh-keyscan", "-T", "5", "-p", str(port), "127.0.0.1").splitlines()
    host_keys = sorted(line.partition(" ")[2] for line in scanned if line and not line.startswith("#"))
    return {"changed": not there, "public": " ".join(public), "host_keys": host_keys}


def entries_for(home, members, silent):
    """Return the entries for tfctl_machine. Each of our lines ends with the name of its host."""
    keys_file, me = home / ".ssh/authorized_keys", home.owner()
    known = [f"{names(each)} {line} {each['name']}" for each in members for line in each["host_keys"]]
    keys = [f'restrict,from="{addresses(each)}" {each["public"]} tfctl {each["name"]}' for each in members]
    blocks = [CONFIG_OF.format(**each) for each in members]
    config = text_of(home / ".ssh/config")
    texts = {
        home / KNOWN: lines(sorted(known + kept(home / KNOWN, silent))),
        home / CONFIG: "".join(sorted(blocks + kept_blocks(home / CONFIG, silent))),
        keys_file: lines(others(keys_file) + sorted(keys + kept(keys_file, silent, " tfctl "))),
        home / ".ssh/config": config if INCLUDE in config else f"{INCLUDE}\n{config}",
    }
    return [{"file": str(path), "content": text, "owner": me, "mode": "0600"} for path, text in texts.items()]


def names(member):
    """Return a host's names in the form of known_hosts."""
    port = int(member["port"])
    shown = (member["name"], member["address"])
    return ",".join(dict.fromkeys(each if port == 22 else f"[{each}]:{port}" for each in shown))


def addresses(member):
    found = socket.getaddrinfo(member["address"], None, type=socket.SOCK_STREAM)
    return ",".join(sorted({each[4][0] for each in found}))


def kept(path, silent, mark=""):
    """Return our lines about hosts that did not answer."""
    return [line for line in text_of(path).splitlines() if mark in line and line.rpartition(" ")[2] in silent]


def others(path):
    return [line for line in text_of(path).splitlines() if not re.search(r" tfctl \S+$", line)]


def kept_blocks(path, silent):
    blocks = re.split(r"(?m)^(?=Host )", text_of(path))
    return [block for block in blocks if block.split()[1:2] and block.split()[1] in silent]


def dial(members):
    """Connect to each host. Raises Failed with those that cannot be reached."""
    wrong = [each["name"] for each in members if not ends_well("ssh", "-o", "BatchMode=yes", each["name"], "true")]
    if wrong:
        raise Failed(f"no way by ssh to {', '.join(wrong)}", f"see: ssh -v {wrong[0]} true")
    return {"changed": False}


def lines(found):
    return "".join(f"{line}\n" for line in found)


def text_of(path):
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def said(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout


def ends_well(*words):
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False).returncode == 0


if __name__ == "__main__":
    main()
