"""tfctl does not run `ssh -G` for a host that no ssh_config concerns. For each such host, `ssh -G` must agree."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

from loopback import forget_files

from tests.fuzz.cases import FUZZER, Cases
from tests.ssh.conftest import home as home
from tfctl.remote import ssh_config

pytestmark = FUZZER

#: The options that tfctl reads.
READ = (
    "user", "port", "hostname", "identityfile", "proxyjump", "proxycommand", "userknownhostsfile", "hostkeyalias",
    "globalknownhostsfile", "identitiesonly", "identityagent", "connecttimeout", "certificatefile",
)  # fmt: skip
OPTIONS = [
    "User x", "Port 99", "HostName other", "IdentityFile ~/.ssh/k", "ProxyJump j", "ProxyCommand nc %h %p",
    "UserKnownHostsFile /x", "HostKeyAlias z", "IdentitiesOnly yes", "IdentityAgent none", "ConnectTimeout 3",
    "GlobalKnownHostsFile /y", "user=x", "User = x", "Port\t99", '"User" x', 'User "x"', "uSer x", "  User x",
    "CertificateFile /c", "Compression yes", "ForwardAgent yes", "HostKeyAlias=z", "User x # c", "Tag t",
    "StrictHostKeyChecking no", "CanonicalizeHostname yes", "CanonicalDomains d",
]  # fmt: skip
HOSTS = [
    "node1", "*", "node*", "!node1 *", "* !node1", "node?", "other", "Node1", "node1,other", '"node1"', '"node1 other"',
    "other node1", "=node1", "node1 # x", "!other", "*1", '"*"', "other #node1", "node1#", "'node1'", "other 'node*'",
    "'node1 other'", "node'1'", 'no"de1"', "!'node1' *", "* # !node1", "node\\1", "'node1", '"node1', "''", '"" node1',
]  # fmt: skip
OTHERS = [
    "Match all", "Match final all", "Match host node1", "Match user x", "Match originalhost node*", "match ALL",
    "Match !all", "Match exec true", "Match final", "Match canonical all", "Match all ", "Match tagged t",
    "Include d/a", "Include d/*", 'include "d/a"', "Include=d/a", "", "# c", "# c\x0bHost other", "\tHost other",
    '"Host" node1', "Include 'd/a'",
]  # fmt: skip


def line(draw: Random) -> str:
    word = draw.choice(["Host ", "Host=", "host ", "Host\t", "Host = "])
    return draw.choice([f"{word}{draw.choice(HOSTS)}", draw.choice(OTHERS), draw.choice(OPTIONS), draw.choice(OPTIONS)])


def lines(draw: Random, most: int) -> str:
    return "".join(f"{line(draw)}\n" for _ in range(draw.randint(1, most)))


def by_ssh(config: str, address: str) -> dict[str, list[str]] | None:
    """Return what `ssh -G` reads from a file, or None if it refuses the file."""
    words = ["ssh", "-G", "-F", config, "--", address]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        return None
    found: dict[str, list[str]] = {}
    for said in done.stdout.splitlines():
        key, _, value = said.partition(" ")
        if key in READ:
            found.setdefault(key, []).append(value)
    return found


def test_ssh_agrees_that_a_configuration_does_not_concern_a_host(home: Path) -> None:
    plain = {address: by_ssh("none", address) for address in ("node1", "10.0.0.1")}
    (home / ".ssh/d").mkdir()
    # ssh would look for included files in the directory of the user database.
    shown = home / ".ssh/shown"
    cases, unconcerned = Cases(4000), 0
    for number, draw in cases:
        text, included = lines(draw, 4), lines(draw, 2)
        (home / ".ssh/config").write_text(text)
        (home / ".ssh/d/a").write_text(included)
        shown.write_text(text.replace("d/", f"{home}/.ssh/d/"))
        for file in (shown, home / ".ssh/d/a"):
            file.chmod(0o600)
        forget_files()
        address = draw.choice(list(plain))
        if ssh_config._is_configured(address):
            continue
        unconcerned += 1
        found = by_ssh(str(shown), address)
        if found not in (None, plain[address]):
            cases.fault(number, "ssh reads an option that tfctl does not see", (address, text, included))
    cases.require_none(least=500)
    assert unconcerned > cases.made / 20
