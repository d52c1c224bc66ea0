"""Other programs that run a command on many hosts, for comparison. Each runs `true` on all hosts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from scripts.bench_scale.rig import USER, Rig

#: Connections or processes at once, for programs that need a number.
FORKS = 50
_INSTALL_S = 300
_PARALLEL_SSH = """
import sys
from pssh.clients import ParallelSSHClient

file, port, user, key = sys.argv[1:]
with open(file) as names:
    hosts = names.read().split()
client = ParallelSSHClient(hosts, port=int(port), user=user, pkey=key, allow_agent=False, num_retries=1)
outputs = client.run_command("true", stop_on_errors=True)
client.join(outputs)
sys.exit(sum(output.exit_code != 0 for output in outputs) and 1)
"""


class Peer(NamedTuple):
    """``package``: what is to be installed, or "" for a dependency of tfctl. ``words``: the command line, from the
    directory of the programs and a rig."""

    title: str
    package: str
    words: Callable[[Path, Rig], list[str]]


def _ansible(bin_: Path, rig: Rig) -> list[str]:
    # Its default arguments without ControlPersist, which would leave a process for each host behind.
    program = ["env", "ANSIBLE_SSH_ARGS=-C", str(bin_ / "ansible")]
    return [*program, "all", "-i", str(rig.inventory), "-m", "raw", "-a", "true", "-f", str(FORKS)]


def _parallel_ssh(bin_: Path, rig: Rig) -> list[str]:
    words = [str(_host_file(rig)), str(rig.port), USER, str(rig.key)]
    return [str(bin_ / "python"), "-c", _PARALLEL_SSH, *words]


def _clush(bin_: Path, rig: Rig) -> list[str]:
    options = " ".join([f"-p {rig.port} -i {rig.key}", *rig.ssh_options()])
    words = ["-S", "-q", "-f", str(FORKS), "-l", USER, "-o", options, "--hostfile", str(_host_file(rig)), "true"]
    return [str(bin_ / "clush"), *words]


PEERS = {
    "ansible": Peer("ansible raw", "", _ansible),
    "parallel-ssh": Peer("parallel-ssh", "parallel-ssh", _parallel_ssh),
    "clush": Peer("clush", "ClusterShell", _clush),
}


def install(peer: Peer, folder: Path, env: Mapping[str, str]) -> Path:
    """Install a peer into an environment of its own in ``folder``. Return the directory of its programs.

    Raise RuntimeError with the reason if it cannot be installed.
    """
    programs = Path(sys.executable).parent
    if not peer.package:
        return programs
    uv = str(programs / "uv")
    made = folder / peer.package / "bin"
    for words in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(made.parent)],
        [uv, "pip", "install", "--quiet", "--python", str(made / "python"), peer.package],
    ):
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=_INSTALL_S, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["uv failed"])[-1].strip())
    return made


def _host_file(rig: Rig) -> Path:
    file = rig.folder / "addresses"
    file.write_text("\n".join([*rig.addresses, ""]))
    return file
