"""A job with requirements starts only where its packages are installed, and its tasks find them."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.hosts import Hosts
from tfctl.model import requirements, stacks

STACK = stacks.get("tf2.15")
TWO = "requirements: requirements.txt\ncommand: [sh, -c, 'echo at $TFCTL_REQUIREMENTS']\nroles: {worker: 2}\n"


def job(hosts: Hosts, text: str = "six\n") -> Path:
    """Write a job file whose two tasks are on node1 and node2, with a requirements file."""
    file = hosts.file("own", TWO)
    file.write_text(file.read_text().replace("stack: none", "stack: tf2.15"))
    file.with_name("requirements.txt").write_text(text)
    return file


def resolve(file: Path, python: str, packages: str = "six==1.17.0\n") -> str:
    """Write the lock file that provision would write, and return the directory of the packages."""
    own = file.with_name("requirements.txt")
    path = requirements.lock_path(own, STACK, "cpu", python)
    lock = requirements.Lock(path, STACK.environment("cpu", python), packages)
    requirements.store(lock, own, STACK, "cpu", python)
    return lock.directory


def refused(hosts: Hosts, file: Path) -> str:
    done = hosts("start", file)
    assert (done.code, done.out) == (8, "")
    own = file.with_name("requirements.txt")
    assert f"tfctl provision {hosts.inventory} --requirements {own} --stack tf2.15" in done.err
    hosts.untouched()
    return done.err


def test_start_names_every_host_that_lacks_the_packages_and_the_command(hosts: Hosts) -> None:
    file = job(hosts)
    assert "node1, node2: stack tf2.15 there differs from that of this tfctl" in refused(hosts, file)
    for name, python in (("node1", "3.11"), ("node2", "3.10")):
        hosts.install_stack(name, STACK.environment("cpu", python))
    found = refused(hosts, file)
    assert "node1: requirements.txt has no lock file for its present content and tf2.15 (cpu, Python 3.11)" in found
    places = {"node1": resolve(file, "3.11"), "node2": resolve(file, "3.10")}
    assert "node1, node2: the packages of requirements.txt are not installed" in refused(hosts, file)
    hosts.install_packages("node1", places["node1"])
    assert "node2: the packages" in refused(hosts, file)
    hosts.install_packages("node2", places["node2"])
    hosts.ok("start", file, "--wait")
    for number, name in enumerate(places):
        assert f"at {places[name]}" in hosts.ok("logs", "--job", "own", f"worker/{number}")
    hosts.ok("stop", "own")
    file.with_name("requirements.txt").write_text("six==1.16.0\n")
    assert "no lock file for its present content" in refused(hosts, file)


def test_start_refuses_requirements_without_a_stack_that_tfctl_knows(hosts: Hosts) -> None:
    file = job(hosts)
    file.write_text(file.read_text().replace("stack: tf2.15", "stack: none"))
    done = hosts("start", file)
    assert (
        done.code == 3 and "requirements: they are resolved for a stack, and none is not a stack of tfctl" in done.err
    )
    file.write_text(file.read_text().replace("requirements.txt", "other.txt"))
    assert "other.txt is not a file" in hosts("start", file).err
