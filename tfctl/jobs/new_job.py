"""The files with which a new job begins: a job file, a script that trains, and an inventory to fill in."""

from __future__ import annotations

import re
from pathlib import Path

import tfctl
from tfctl.errors import BadFile, UsageError
from tfctl.model.strategies import STRATEGIES
from tfctl.model.strategies.base import Strategy
from tfctl.model.text import near
from tfctl.node.names import JOB

#: What every strategy can be tried with. It is also the newest stack with tf.estimator and Horovod.
STACK = "tf2.15"

_JOB = """\
# {strategy}: {title}.
#   tfctl check job.yaml                   find mistakes, without contacting any host
#   tfctl run job.yaml                     run it on this machine
#   tfctl start job.yaml --wait --follow   run it on the hosts
# To let an editor complete the keys, run `tfctl schema > job.schema.json` in this directory, and remove one # from:
## yaml-language-server: $schema=job.schema.json
name: {name}
inventory: hosts.ini         # relative to this file
strategy: {strategy}
stack: {stack}                # the TensorFlow version; `tfctl stacks` lists them
code: .                      # this directory is sent to the hosts
command: {command}
{output}
env:
  TF_CPP_MIN_LOG_LEVEL: 1    # 0 logs more
#  WANDB_API_KEY:            # without a value: the one that your shell has
#env_file: .env              # lines NAME=VALUE; this file is not sent with the code
roles:
{roles}
#policy: {{deadline: 12h}}     # the longest time that the job may take
"""
_LOCAL = "output: local                # each host has /srv/tfctl/{name} for itself"
_SHARED = "output: /srv/tfctl/{name}    # a directory that all hosts share, such as an NFS export"

_INVENTORY = """\
# The hosts on which jobs run: an Ansible inventory. {hosts}
#   tfctl preflight hosts.ini     list what each host lacks; changes nothing
#   tfctl provision hosts.ini     install TensorFlow and what jobs need
# If sudo needs a password, add -K to tfctl preflight, provision and reset.

[gpu]
{listed}

[all:vars]
{login}# The stack (TensorFlow version) to install.
tfctl_stack={stack}
{more}"""
_BY_SSH = {
    "hosts": "Replace the names and addresses with those of your machines.",
    "listed": """\
# node1 is the name that tfctl shows. ansible_host is the address that ssh connects to.
node1 ansible_host=192.0.2.11
node2 ansible_host=192.0.2.12""",
    "login": """\
# The user that logs in to the hosts by ssh and can use sudo. Remove the # and enter yours.
#ansible_user=ubuntu
#ansible_ssh_private_key_file=~/.ssh/id_ed25519
""",
}
_HERE = {
    "hosts": "It has this machine, which needs no ssh.",
    "listed": """\
localhost ansible_connection=local
# To add another machine, remove the # and enter its address:
#node1 ansible_host=192.0.2.11 ansible_user=ubuntu""",
    "login": "",
}
_HOROVOD = "# Build Horovod for it, once on one host of each kind.\ntfctl_horovod=true\n"


def known_strategy(name: str) -> Strategy:
    """Return the strategy of this name. Raise UsageError if there is none."""
    found = STRATEGIES.get(name)
    if found is None:
        raise UsageError(f"--strategy: {name!r} is not known", near(name, list(STRATEGIES)))
    return found


def files(known: Strategy, name: str, stack: str = STACK, here: bool = False) -> dict[str, str]:
    """Return the text of each file of a new job by its name. ``here``: the host of the inventory is this machine."""
    first = known.first_job
    output = (_SHARED if known.why_shared else _LOCAL).format(name=name)
    return {
        "job.yaml": _JOB.format(
            strategy=known.name,
            title=first.title,
            name=name,
            stack=stack,
            command=first.command,
            output=output,
            roles="\n".join(f"  {line}" for line in first.roles),
        ),
        "train.py": (_examples() / first.example / "train.py").read_text(encoding="utf-8"),
        "hosts.ini": _INVENTORY.format(
            stack=stack, more=_HOROVOD if known.needs_horovod else "", **(_HERE if here else _BY_SSH)
        ),
    }


def write(folder: Path, strategy: Strategy, stack: str = STACK, here: bool = False) -> list[Path]:
    """Write the files of a new job into the directory, which is created, and return their paths. ``here``: see `files`.

    Raise UsageError if one of them exists, before anything is written, and BadFile if they cannot be written.
    """
    found = {folder / name: text for name, text in files(strategy, _job_name(folder), stack, here).items()}
    there = [path for path in found if path.exists() or path.is_symlink()]
    if there:
        names = " and ".join(map(str, there))
        raise UsageError(f"{names} exist already" if there[1:] else f"{names} exists already", "name a new directory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in found.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise BadFile(
            f"{error.filename or folder}: cannot be written: {error.strerror}", "name another directory"
        ) from None
    return [*found]


def _job_name(folder: Path) -> str:
    """Return the directory's name as the name of a job, or "train" if nothing of it can be one."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).lstrip("-0123456789")[:40].rstrip("-")
    return name if JOB.fullmatch(name) else "train"


def _examples() -> Path:
    """Return the directory of examples: inside the installed package, or beside it in a checkout."""
    package = Path(tfctl.__file__).resolve().parent
    inside = package / "_examples"
    return inside if inside.is_dir() else package.parent / "examples"
