"""Run a command as a Horovod rank under Open MPI: python3 -m tfctl_runtime.horovod.mpi COMMAND...

Rank 0 runs mpirun beside itself. mpirun reaches other hosts not over ssh but through their ranks' agents, which run
its daemon inside the job's own units. The process that mpirun starts as a rank only asks that rank's agent to run it.

    … --rsh HOST LINE...     called instead of ssh (plm_rsh_agent)
    … --rank                 called instead of COMMAND
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import List

from tfctl_runtime.horovod.agent import Agent, on_sigterm, say
from tfctl_runtime.horovod.peers import FAULTS, answer, ask, await_free, hosts, peers
from tfctl_runtime.horovod.route import network

#: Prefixes of the variables that mpirun sets for a rank.
_PREFIXES = ("OMPI_", "PMIX_", "ORTE_", "OPAL_")
#: How long (s) mpirun may take to end after the rank beside it.
_AFTER_S = 60.0


def main(words: List[str]) -> int:
    """Run one of the three forms above. Return the exit code of the rank or daemon."""
    if words[:1] == ["--rsh"]:
        return _asked(hosts().index(words[1]), do="daemon", line=" ".join(words[2:]))
    if words[:1] == ["--rank"]:
        told = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}
        return _asked(int(os.environ["OMPI_COMM_WORLD_RANK"]), do="rank", environment=told)
    if without_mpi():
        say("this host's Horovod was built without MPI (tfctl_openmpi); `launcher: gloo` does not need it")
        return 1
    rank = int(os.environ["TFCTL_INDEX"])
    agent = Agent(words, peers()[rank][1])
    on_sigterm(agent)
    if rank:
        return agent.result()
    return _head(agent)


def _head(agent: Agent) -> int:
    """Run mpirun beside rank 0's agent, and return the rank's exit code."""
    missing = await_free(float(os.environ["TFCTL_MEET_S"]))
    if missing:
        say("no answer from {}".format(", ".join(f"worker/{rank}" for rank in missing)))
        return 1
    mpirun = shutil.which("mpirun")
    if not mpirun:
        say("mpirun is not on PATH: provision the hosts with tfctl_horovod=true and Open MPI")
        return 127
    child = subprocess.Popen(words_of(os.path.realpath(mpirun), hosts()))
    on_sigterm(agent, child)
    threading.Thread(target=lambda: agent.give_up(child.wait()), daemon=True).start()
    code = agent.result()
    try:
        child.wait(_AFTER_S)
    except subprocess.TimeoutExpired:
        child.kill()
    return code


def without_mpi() -> bool:
    """Return whether Horovod is installed but built without MPI: under mpirun it would crash."""
    spec = importlib.util.find_spec("horovod")
    folders = spec.submodule_search_locations or [] if spec else []
    libraries = [library for folder in folders for library in Path(folder).glob("tensorflow/mpi_lib*.so")]
    return bool(libraries) and not any(b"libmpi" in library.read_bytes() for library in libraries)


def words_of(mpirun: str, addresses: List[str]) -> List[str]:
    """Return mpirun's command line for ranks at these addresses. An absolute ``mpirun`` sets the remote prefix too."""
    slots = Counter(addresses)
    program = [sys.executable, "-m", __spec__.name]
    # Rank N must run where worker N is: tasks are dealt round-robin over the hosts, or a fixed number to each.
    dealt = addresses[: len(slots)] == list(slots)
    flags = [
        "--host", ",".join(f"{address}:{count}" for address, count in slots.items()),
        "-np", str(len(addresses)),
        "--map-by", "node" if dealt else "slot",
        "--bind-to", "none",
        "--leave-session-attached",  # its daemon stays a child of the agent
        "-mca", "plm_rsh_agent", " ".join([*program, "--rsh"]),
        "-mca", "plm_rsh_no_tree_spawn", "1",
        "-mca", "plm_rsh_num_concurrent", str(len(slots)),
        "-mca", "pml", "ob1",
        "-mca", "btl", "^openib",
    ]  # fmt: skip
    between = network(list(slots)) if len(slots) > 1 else ""
    if between:  # without it, Open MPI finds out which interfaces reach each other
        flags += ["-mca", "btl_tcp_if_include", between, "-mca", "oob_tcp_if_include", between]
    return [mpirun, *flags, *program, "--rank"]


def _asked(rank: int, **message: object) -> int:
    """Ask a rank's agent to run something, and return the exit code it reports."""
    try:
        with ask(peers()[rank], **message) as connection:
            return int(answer(connection)["exit"])
    except FAULTS as fault:
        say(f"worker/{rank} does not answer: {fault}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
