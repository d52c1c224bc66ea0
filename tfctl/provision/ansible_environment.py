"""The environment of ansible-playbook. Its settings override those of the ansible.cfg that Ansible finds.

What says how to reach hosts stays as the user has set it: user, key, jump hosts, the vault, collections, and how sudo
is called. What would change the run itself is fixed here.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from tfctl.errors import BadFile
from tfctl.provision.run_folder import RunFolder
from tfctl.remote import ansible_cfg

#: Hosts that Ansible works on at the same time. Each needs a process of about 50 MB on this machine.
FORKS = 50
_SSH = (
    "ControlMaster=auto",
    "ControlPersist=60s",
    # A prompt of ssh would be hidden by the progress on the terminal.
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    # Without these, a connection to a host that has crashed ends only after a quarter of an hour.
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
)
_CONTROL = re.compile(r"(-o)?\s*Control(Path|Master|Persist)\b", re.IGNORECASE)
#: The program that Ansible runs as ssh. Of the keys in the agent, only the one that the inventory names is offered to a
#: host, as by tfctl's own connections: after a few others, sshd disconnects. A name is not enough: see `login_options`.
_SSH_PROGRAM = """#!/bin/sh
for word do
    case $word in IdentityFile=\\"*)
        key=${word#IdentityFile=\\"}; key=${key%\\"}
        if [ -e "$key" ] || [ -e "$key.pub" ]; then set -- -o IdentitiesOnly=yes "$@"; fi
        break
    esac
done
exec {program} "$@"
"""
#: Of the run: which tasks run, in which order, as whom, and what their results contain.
_RUN = {
    "ANSIBLE_STRATEGY": "ansible.builtin.linear",
    "ANSIBLE_ANY_ERRORS_FATAL": "False",
    "ANSIBLE_FORKS": str(FORKS),
    "ANSIBLE_SKIP_TAGS": "",
    "ANSIBLE_FORCE_HANDLERS": "False",
    "ANSIBLE_ENABLE_TASK_DEBUGGER": "False",
    "ANSIBLE_TASK_TIMEOUT": "0",
    "ANSIBLE_ERROR_ON_UNDEFINED_VARS": "True",
    "ANSIBLE_GATHERING": "explicit",
    "ANSIBLE_CACHE_PLUGIN": "memory",
    "ANSIBLE_INJECT_FACT_VARS": "True",
    "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore",  # a group of hosts that a play makes for the next one may be empty
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
    "ANSIBLE_TRANSPORT": "ssh",
    "ANSIBLE_EXECUTABLE": "/bin/sh",
    "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
    "ANSIBLE_HOST_KEY_CHECKING": "True",
    "ANSIBLE_PIPELINING": "True",
    "ANSIBLE_TIMEOUT": "20",
    "ANSIBLE_BECOME": "False",  # plays say where they need it
    "ANSIBLE_BECOME_USER": "root",
    # There is no terminal to ask on, and stdin has the password of sudo.
    "ANSIBLE_BECOME_ASK_PASS": "False",
    "ANSIBLE_ASK_PASS": "False",
    "ANSIBLE_ASK_VAULT_PASS": "False",
}
#: Of what it reports: the callback plugin of tfctl reads results, and this process reads stdout and stderr.
_REPORT = {
    "LC_ALL": "C.UTF-8",  # Ansible refuses any other encoding, and a locale that this machine does not have
    "ANSIBLE_STDOUT_CALLBACK": "tfctl.cluster.events",
    "ANSIBLE_CALLBACKS_ENABLED": "tfctl.cluster.events",  # the list cannot be empty
    "ANSIBLE_CALLBACK_PLUGINS": os.devnull,
    "ANSIBLE_VERBOSITY": "0",
    "ANSIBLE_DEBUG": "False",
    "ANSIBLE_NO_LOG": "False",
    "ANSIBLE_DIFF_ALWAYS": "False",
    "ANSIBLE_INJECT_INVOCATION": "True",  # ansible-core 2.21 otherwise omits it from results: see causes_of
    "ANSIBLE_NO_TARGET_SYSLOG": "True",  # arguments of modules contain whole files
    "ANSIBLE_KEEP_REMOTE_FILES": "False",
    "ANSIBLE_RETRY_FILES_ENABLED": "False",
    "ANSIBLE_DEPRECATION_WARNINGS": "False",
    "ANSIBLE_DISPLAY_TRACEBACK": "never",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
}


def environment(
    collections: Path, folder: RunFolder, events: int, alive: int, tags: Sequence[str] = ()
) -> dict[str, str]:
    """Return the environment of a run. ``events``, ``alive``: the file descriptors of its callback plugin. ``tags``:
    the only ones that run, or none for all."""
    return {
        **os.environ,
        **_RUN,
        **_REPORT,
        "ANSIBLE_RUN_TAGS": ",".join(tags) or "all",  # --tags would be added to those of ansible.cfg
        "TFCTL_EVENTS_FD": str(events),
        "TFCTL_ALIVE_FD": str(alive),
        "TFCTL_RUN_FOLDER": str(folder.path),
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([str(collections), *_own_collections()]),
        "ANSIBLE_SSH_ARGS": _ssh_args(),
        "ANSIBLE_SSH_EXECUTABLE": _ssh_program(folder),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder.connections),
        "ANSIBLE_SSH_CONTROL_PATH": "",
        "ANSIBLE_LOCAL_TEMP": str(folder.path / "local"),
        **_remote_tmp(folder),
    }


def _ssh_args() -> str:
    """Return tfctl's arguments for ssh, which takes the first value of each option, and then those of the user, with
    which tfctl's own connections also reach the hosts."""
    own = ansible_cfg.read().get("ssh_connection", "ssh_args", "ANSIBLE_SSH_ARGS")
    fixed = shlex.join(word for option in _SSH for word in ("-o", option))
    try:
        words = shlex.split(own.value) if own else []
    except ValueError as error:
        raise BadFile(f"{own.place if own else ''}: {str(error).lower()}", "correct it") from None
    # With a socket at another place, tfctl could not clean up on the hosts.
    pairs = zip(words, [*words[1:], ""], strict=False)
    kept = [word for word, after in pairs if not _CONTROL.match(word) and not (word == "-o" and _CONTROL.match(after))]
    return f"{fixed} {shlex.join(kept)}".strip()


def _ssh_program(folder: RunFolder) -> str:
    """Write the program that Ansible runs as ssh, and return its path. It runs the user's own."""
    own = ansible_cfg.read().get("ssh_connection", "ssh_executable", "ANSIBLE_SSH_EXECUTABLE")
    name = own.value if own else "ssh"
    program = folder.path / "ssh-program"
    program.write_text(_SSH_PROGRAM.replace("{program}", shlex.quote(name)), encoding="utf-8")
    program.chmod(0o700)
    # Nothing can be executed in a directory that is mounted noexec.
    return str(program) if os.access(program, os.X_OK) else name


def _own_collections() -> list[str]:
    """Return the user's directories of collections, for the connection plugins and lookups of inventories."""
    found = ansible_cfg.read().get("defaults", "collections_path", "ANSIBLE_COLLECTIONS_PATH")
    default = ["~/.ansible/collections", "/usr/share/ansible/collections"]
    return found.value.split(os.pathsep) if found else default


def _remote_tmp(folder: RunFolder) -> dict[str, str]:
    """Return the setting of Ansible's directory on the hosts. A user who has set another one keeps it."""
    names = ("ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP")
    settings = ansible_cfg.read()
    set_by_user = any(settings.get("defaults", "remote_tmp", name) for name in names)
    return {} if set_by_user else {"ANSIBLE_REMOTE_TEMP": folder.remote}
