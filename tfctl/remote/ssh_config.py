"""Resolve a host's ssh settings: its own fields first, then its ssh arguments, then ssh_config(5).

`ssh -G` does this, unless the fields and plain `-o Key=Value` arguments decide everything; then nothing is run.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tfctl.errors import BadFile, TfctlError
from tfctl.model.host import Host, Ssh
from tfctl.remote.ansible_cfg import expanded
from tfctl.remote.file_version import this_second

#: Seconds to connect if ConnectTimeout is not set.
CONNECT_S = 10.0
_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
# Options that do not change what tfctl reads from ssh_config(5). For some of them, tfctl has values of its own.
_HARMLESS = frozenset({
    "addkeystoagent", "batchmode", "casignaturealgorithms", "challengeresponseauthentication", "checkhostip", "ciphers",
    "clearallforwardings", "compression", "controlmaster", "controlpath", "controlpersist", "dynamicforward",
    "escapechar", "exitonforwardfailure", "fingerprinthash", "forwardagent", "forwardx11", "forwardx11timeout",
    "forwardx11trusted", "gssapiauthentication", "gssapiclientidentity", "gssapidelegatecredentials",
    "gssapikexalgorithms", "gssapikeyexchange", "gssapirenewalforcesrekey", "gssapiserveridentity", "gssapitrustdns",
    "hashknownhosts", "hostbasedacceptedalgorithms", "hostbasedauthentication", "hostkeyalgorithms", "ignoreunknown",
    "ipqos", "kbdinteractiveauthentication", "kexalgorithms", "localforward", "loglevel", "macs",
    "numberofpasswordprompts", "passwordauthentication", "permitlocalcommand", "preferredauthentications",
    "pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes", "pubkeyauthentication", "rekeylimit", "remoteforward",
    "requiredrsasize", "sendenv", "serveralivecountmax", "serveraliveinterval", "setenv", "stricthostkeychecking",
    "tcpkeepalive", "updatehostkeys", "usekeychain", "verifyhostkeydns", "visualhostkey",
})  # fmt: skip
SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")

Options = Mapping[str, list[str]]
#: The patterns of `Host` blocks, all of which must match.
_Blocks = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Jump:
    """A jump host, reached by ssh, which verifies its key. ``options`` are words for ssh, ``host`` is its destination.

    ``to`` is the address and port behind it, as `ssh -W` takes them.
    """

    options: tuple[str, ...]
    host: str
    to: str

    def command(self, *more: str) -> str:
        """Return the command whose stdin and stdout connect to ``to``; ``more`` are further options."""
        return shlex.join(["ssh", *self.options, *more, "-o", "ServerAliveInterval=15", "-W", self.to, "--", self.host])


@dataclass(frozen=True)
class Server:
    """An ssh server, with everything needed to reach it, verify its key and log in."""

    name: str  # of the host in the inventory; every message begins with it
    address: str
    port: int
    user: str
    keys: tuple[str, ...]  # files that must be usable
    only_named: bool  # IdentitiesOnly: of the agent's keys, offer only those that `keys` name
    usual_keys: tuple[str, ...]  # files tried after the agent if `keys` is empty
    agent: str | None  # its socket
    known_hosts: tuple[str, ...]  # in the order ssh reads them; new keys belong in the first
    key_alias: str | None  # its name in known_hosts
    proxy: str | None  # a shell command whose stdin and stdout connect to the server
    jump: Jump | None  # the jump host, whose connection is shared; `proxy` then connects without sharing it
    limit: float  # seconds to connect

    @property
    def place(self) -> str:
        """Address and port, as a user would type them."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


def resolve(host: Host) -> Server:
    """Return the Server of an inventory's host. Raises BadFile for arguments or an ssh_config that ssh rejects."""
    own = _plain_options(host.ssh.args)
    if own is None or any(map(_is_configured, _names(host.ssh.host, own))):
        options = _options_of_ssh(host)
    else:
        options = {**own, **_fields(host.ssh)}
    return _server(host, options)


def matches(patterns: Iterable[str], name: str) -> bool:
    """Match as ssh does: at least one pattern, and none with ``!``. Only ``*`` and ``?`` are special."""
    matched = [pattern for pattern in patterns if _fits(pattern.lstrip("!"), name)]
    return bool(matched) and not any(pattern.startswith("!") for pattern in matched)


def _fits(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name))


def _plain_options(words: Iterable[str]) -> dict[str, list[str]] | None:
    """Parse `-o Key=Value` arguments, with keys in lower case. Return None if there are any others."""
    options: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        value = word[2:] or (rest.pop(0) if rest else "")
        found = re.fullmatch(r"\s*(\w+)\s*[=\s]\s*(.+)", value)
        if not word.startswith("-o") or found is None or found[1].lower() in ("include", "match", "host"):
            return None
        # As in ssh, the first value of each key counts, except that all key files do.
        options.setdefault(found[1].lower(), []).append(found[2])
    return options


def fields(ssh: Ssh) -> list[str]:
    """Return the host's own fields as options of ssh, ``key=value``."""
    return [f"{key}={value}" for key, (value,) in _fields(ssh).items()]


def login_options(ssh: Ssh) -> list[str]:
    """Return the options of ssh for a login: the host's own fields. A key named in the inventory is the only one."""
    named = bool(ssh.key) and any(Path(f"{ssh.key}{suffix}").exists() for suffix in ("", ".pub"))
    return [*fields(ssh), *(["IdentitiesOnly=yes"] if named else [])]


def _fields(ssh: Ssh) -> dict[str, list[str]]:
    given = {"port": ssh.port, "user": ssh.user, "identityfile": ssh.key and shlex.quote(ssh.key)}
    return {key: [str(value)] for key, value in given.items() if value is not None}


def _names(address: str, options: Options) -> list[str]:
    """Return the names by which an ssh_config may mean the host. After `Match final`, that is its HostName."""
    return [address, *(name.replace("%h", address) for name in options.get("hostname", []))]


def _is_configured(address: str) -> bool:
    """Return whether an ssh_config may affect the connection to ``address``. If in doubt, True."""
    found = _conditions(_home() / ".ssh/config", SYSTEM_CONFIG, this_second())
    return any(all(matches(patterns, address) for patterns in blocks) for blocks in found)


@lru_cache(maxsize=1)
def _conditions(own: Path, shared: Path, _second: int) -> tuple[_Blocks, ...]:
    """Return the conditions under which the two files affect a connection. All hosts share them for a second."""
    return tuple(blocks for file in (own, shared) for blocks in _conditions_in(file, (), file.parent))


def _conditions_in(file: Path, outer: _Blocks, folder: Path, within: tuple[Path, ...] = ()) -> Iterator[_Blocks]:
    """Yield for each directive that may matter the blocks that it is in, also for one that ssh would refuse.

    ``outer``: the blocks that include the file. ``folder``: where relative names of included files belong. ``within``:
    the files that include this one.
    """
    try:
        lines = file.read_text(errors="replace").split("\n")
    except OSError:
        return
    blocks = outer
    for line in lines:
        key, _, rest = re.sub(r"\s*[\s=]\s*", " ", line.strip(), count=1).partition(" ")
        key = key.lower().strip('"')
        if key == "host":
            blocks = (*outer, _patterns(rest))
        elif key == "match" and rest.lower().split() in (["all"], ["final", "all"]):
            blocks = outer
        elif key == "match":
            yield outer
        elif key == "include":
            files = (*within, file.resolve())
            included = _included(folder, rest)
            if included is None or any(found in files for found in included):
                yield blocks
            else:
                for found in included:
                    yield from _conditions_in(found, blocks, folder, files)
        elif key and not key.startswith("#") and key not in _HARMLESS:
            yield blocks


def _patterns(text: str) -> tuple[str, ...]:
    """Return the patterns of a Host line. If versions of ssh read it differently, they match whatever one matches.

    Since 8.7, ssh knows single quotes and quotes within a word, and # begins a comment.
    """
    if "\\" in text or "#" in text:
        return ("*",)
    if "'" not in text and '"' not in text:
        return tuple(text.split())
    try:
        return tuple(word for word in shlex.split(text) if not word.startswith("!"))
    except ValueError:
        return ("*",)


def _included(folder: Path, patterns: str) -> list[Path] | None:
    """Return the files that an Include names, or None if only ssh can tell which ones these are."""
    try:
        words = shlex.split(patterns, comments=True)
        # ssh knows tokens, variables and escapes here, and does not end a word at # as shlex does.
        if not words or re.search(r"[%$\\]|\S#", patterns):
            return None
        paths = [folder / expanded(Path(word)) for word in words]
        return [found.resolve() for path in paths for found in Path(path.anchor).glob(str(path.relative_to("/")))]
    except (BadFile, OSError, RuntimeError, ValueError, IndexError, NotImplementedError):
        return None


def _options_of_ssh(host: Host) -> dict[str, list[str]]:
    """Return the options that `ssh -G` prints, without ssh's default key files."""
    ssh = host.ssh
    own = [word for option in fields(ssh) for word in ("-o", option)]
    try:
        done = subprocess.run(
            ["ssh", "-G", *own, *ssh.args, "--", ssh.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CONNECT_S,
            check=False,
        )
    except FileNotFoundError:
        raise TfctlError("ssh is not installed", "install it: apt install openssh-client") from None
    except subprocess.TimeoutExpired:
        what = f"{host.name}: `ssh -G {ssh.host}` ran longer than {CONNECT_S:g} s and was killed"
        raise BadFile(what, "look in ~/.ssh/config for a `Match exec` whose command does not end") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise BadFile(f"{host.name}: ssh refuses its arguments or configuration: {reason}", f"try: ssh -G {ssh.host}")
    options: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        options.setdefault(key, []).append(shlex.quote(value) if key == "identityfile" else value)
    usual = {f"~/.ssh/{name}" for name in ("id_dsa", "id_xmss", "id_ecdsa_sk", "id_ed25519_sk", *_USUAL_KEYS)}
    options["identityfile"] = [key for key in options.get("identityfile", []) if "".join(shlex.split(key)) not in usual]
    if "-F" in ssh.args:
        options["config"] = [ssh.args[ssh.args.index("-F") + 1]]
    return options


def _server(host: Host, options: Options) -> Server:
    def option(key: str) -> str | None:
        value = (options.get(key) or [""])[0].strip('"')
        return None if value.lower() in ("", "none") else value

    port = option("port") or "22"
    if not (port.isascii() and port.isdigit()):
        raise BadFile(f"{host.name}: Port {port!r} is not a number", "correct it among the host's ssh arguments")
    user = option("user") or _user()
    address = option("hostname") or host.ssh.host
    tokens = _Tokens({"h": address, "n": host.ssh.host, "p": port, "r": user, "k": option("hostkeyalias") or address})
    named = tuple(tokens.paths(" ".join(options.get("identityfile", []))))
    only_named = (option("identitiesonly") or "no").lower() in ("yes", "true")
    own = option("userknownhostsfile") or "~/.ssh/known_hosts ~/.ssh/known_hosts2"
    shared = option("globalknownhostsfile") or "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
    limit = option("connecttimeout") or ""
    jump = _jump(option("proxyjump"), option("config"), tokens)
    command = option("proxycommand")
    return Server(
        name=host.name,
        address=address,
        port=int(port),
        user=user,
        # As with IdentitiesOnly: a key named in the inventory is the only one to use.
        keys=named[:1] if host.ssh.key else named,
        only_named=only_named,
        usual_keys=tuple(f"{tokens.home}/.ssh/{name}" for name in _USUAL_KEYS),
        agent=None if only_named and not named else _agent(options, tokens),
        known_hosts=tuple(tokens.paths(f"{own} {shared}")),
        key_alias=option("hostkeyalias"),
        proxy=jump.command() if jump else tokens.text(command) if command else None,
        jump=jump,
        limit=float(limit) if limit.isascii() and limit.isdigit() and int(limit) else CONNECT_S,
    )


def _agent(options: Options, tokens: _Tokens) -> str | None:
    named = (options.get("identityagent") or ["SSH_AUTH_SOCK"])[0].strip('"')
    if named.lower() == "none":
        return None
    if named == "SSH_AUTH_SOCK" or named.startswith("$"):
        return os.environ.get(named.removeprefix("$")) or None
    return tokens.paths(named)[0]


def _jump(jump: str | None, config: str | None, tokens: _Tokens) -> Jump | None:
    if jump is None:
        return None
    before, _, last = jump.rpartition(",")
    words = [*(["-F", config] if config else []), *(["-J", before] if before else [])]
    words += ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]
    return Jump(tuple(words), last if "://" in last else f"ssh://{last}", tokens.text("[%h]:%p"))


@lru_cache(maxsize=1)
def _home() -> Path:
    """Return the home directory from the user database, as OpenSSH does, not $HOME."""
    import pwd

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        what = f"this machine has no user with the ID {os.getuid()}, and ssh needs one"
        raise TfctlError(what, "add it to /etc/passwd, or run tfctl as another") from None


def _user() -> str:
    import getpass

    return getpass.getuser()


@lru_cache(maxsize=256)
def _words(text: str) -> tuple[str, ...]:
    """Split a list of paths as ssh writes it. Most hosts have the same."""
    return tuple(shlex.split(text))


@lru_cache(maxsize=256)
def _path(text: str, home: str) -> str:
    return str(Path(home, text[2:]) if text.startswith("~/") else expanded(Path(text)))


class _Tokens:
    """The % tokens of ssh_config(5), and ~."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.home = str(_home())
        self._values = {"%": "%", "d": self.home, **values}

    def text(self, text: str) -> str:
        return re.sub(r"%(.)", lambda found: self._value(found[1]) or found[0], text)

    def paths(self, text: str) -> list[str]:
        """Return the paths of a list as ssh writes it: separated by spaces, and quoted if they contain one."""
        return [_path(self.text(word), self.home) for word in _words(text)]

    def _value(self, letter: str) -> str | None:
        if letter == "u":
            return _user()
        if letter == "i":
            return str(os.getuid())
        if letter in "lL":
            own = socket.gethostname()
            return own if letter == "l" else own.partition(".")[0]
        return self._values.get(letter)
