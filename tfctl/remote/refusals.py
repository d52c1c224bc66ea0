"""Why a connection fails. Both transports report a failure with the same error, which names host, cause and remedy."""

from __future__ import annotations

import errno
import shlex

from tfctl.errors import Unreachable
from tfctl.remedies import GIVE_ADDRESS, IS_IT_UP, START_SSHD, TOO_MANY, login_refused
from tfctl.remote.ssh_config import Server
from tfctl.wording import plain_lines

WITH_OPENSSH = "connect with the ssh program: set TFCTL_SSH=openssh, or tfctl_ssh=openssh in the inventory"
OVERLOADED = "the machine may be overloaded, or out of disk or memory: check its console"


def not_connected(server: Server, error: OSError) -> Unreachable:
    """The TCP connection failed with ``error``, or timed out if that is a TimeoutError without a number."""
    if isinstance(error, ConnectionRefusedError):
        return Unreachable(
            f"{server.name}: {server.place} refuses the connection",
            START_SSHD,
        )
    if isinstance(error, TimeoutError) and error.errno is None:
        return Unreachable(f"{server.name}: {server.place} does not answer within {server.limit:g} s", IS_IT_UP)
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return Unreachable(f"{server.name}: no route to {server.place}", IS_IT_UP)
    return Unreachable(f"{server.name}: no connection to {server.place}: {error.strerror or error}", IS_IT_UP)


def name_not_found(server: Server, reason: object) -> Unreachable:
    return Unreachable(
        f"{server.name}: the name '{server.address}' is not found: {reason}",
        GIVE_ADDRESS,
    )


def proxy_failed(server: Server, message: str) -> Unreachable:
    """The proxy command ended with ``message`` on stderr. It is not shown if it may hold a password of the user."""
    remedy = (
        f"it is: {server.jump.command()}"
        if server.jump
        else "correct ProxyCommand in the inventory (ansible_ssh_common_args) or in ssh_config"
    )
    return Unreachable(f"{server.name}: {server.place}: the proxy command ended: {message}", remedy)


def silent_at_first(server: Server) -> Unreachable:
    return Unreachable(
        f"{server.name}: {server.place} accepts the connection but sends nothing for {server.limit:g} s", OVERLOADED
    )


def silent_in_key_exchange(server: Server) -> Unreachable:
    return Unreachable(f"{server.name}: {server.place} answers, then falls silent for {server.limit:g} s", OVERLOADED)


def silent_in_login(server: Server) -> Unreachable:
    return Unreachable(f"{server.name}: {server.place} does not answer the login within {server.limit:g} s", OVERLOADED)


def closed_at_first(server: Server) -> Unreachable:
    return Unreachable(f"{server.name}: {server.place} closes the connection before it sends anything", TOO_MANY)


def key_exchange_ended(server: Server, reason: str) -> Unreachable:
    what = f": {reason}" if reason else ""
    return Unreachable(f"{server.name}: {server.place} broke off the key exchange{what}", TOO_MANY)


def not_sshd(server: Server, greeting: str) -> Unreachable:
    return Unreachable(
        f"{server.name}: {server.place} is not sshd; it sends: {greeting[:80]}",
        "correct ansible_host or ansible_port",
    )


def no_common_algorithm(server: Server, reason: str) -> Unreachable:
    return Unreachable(
        f"{server.name}: {server.place}: no algorithm in common: {reason}", "its sshd is too old, or too strict"
    )


def only_certified(server: Server, place: str) -> Unreachable:
    """known_hosts knows, at ``place``, only the authority that certifies the host's keys."""
    return Unreachable(
        f"{server.name}: {place} has only a certificate authority (@cert-authority) for {server.place}, and the "
        "transport paramiko does not support host certificates",
        WITH_OPENSSH,
    )


def certificate_invalid(server: Server, reason: str) -> Unreachable:
    return Unreachable(
        f"{server.name}: the host certificate of {server.place} is not valid: {reason}",
        f"sign the host's key again, for this name: ssh-keygen -s CA -I ID -h -n {shlex.quote(server.address)} KEY.pub",
    )


def not_let_in(server: Server, text: str) -> Unreachable | None:
    """The host accepts the key, but refuses the user. ``text``: what it says. None if it does not say so there."""
    found = login_refused(plain_lines(text))
    if found is None:
        return None
    line, remedy = found
    return Unreachable(
        f"{server.name}: {server.place} does not let user {server.user} log in: {line}", remedy.naming(server.name)
    )


def key_refused(server: Server, methods: str = "") -> Unreachable:
    """The host accepts no key; ``methods`` are what it accepts instead, or empty."""
    file = f" -i {shlex.quote(server.keys[0])}" if server.keys else ""
    accepted = f"; it accepts {methods}" if methods else ""
    return Unreachable(
        f"{server.name}: {server.place} rejects user {server.user} with "
        f"{' or '.join(server.keys) or 'any key of the agent or of ~/.ssh'}{accepted}",
        f"correct ansible_user or ansible_ssh_private_key_file, or install the key: ssh-copy-id{file} "
        f"-p {server.port} {server.user}@{server.address}",
    )


def key_file_missing(server: Server, name: str) -> Unreachable:
    return Unreachable(
        f"{server.name}: the key file {name} does not exist", "correct ansible_ssh_private_key_file or IdentityFile"
    )


def key_file_unusable(server: Server, name: str) -> Unreachable:
    return Unreachable(
        f"{server.name}: {name} holds no private key that can be used", "it should begin with -----BEGIN"
    )


def key_file_locked(server: Server, name: str) -> Unreachable:
    """The key needs a passphrase."""
    return Unreachable(
        f"{server.name}: the key file {name} needs a passphrase, and no agent holds the key",
        f"unlock it for this session: eval $(ssh-agent); ssh-add {shlex.quote(name)}",
    )


def key_on_token(server: Server, name: str) -> Unreachable:
    """The private key is on a security token (FIDO), which paramiko does not support."""
    return Unreachable(
        f"{server.name}: {name} is a key of a security token, which the transport paramiko does not support",
        WITH_OPENSSH,
    )


def key_file_open(server: Server, name: str) -> Unreachable:
    return Unreachable(
        f"{server.name}: others can read the key file {name}, so ssh does not use it", f"chmod 600 {shlex.quote(name)}"
    )


def key_only_public(server: Server, name: str) -> Unreachable:
    return Unreachable(
        f"{server.name}: {name} is a public key, and no agent holds its private key",
        f"add the private key to the agent (ssh-add {shlex.quote(name.removesuffix('.pub'))}), or name its file",
    )


def not_forwarded(server: Server, port: int, reason: str) -> Unreachable:
    """The host does not connect to one of its own ports."""
    if "prohibited" in reason.lower():
        remedy = "allow it there: AllowTcpForwarding yes in sshd_config"
        return Unreachable(f"{server.name}: sshd does not forward ports: {reason}", remedy)
    return Unreachable(f"{server.name}: nothing listens on port {port} of its loopback address: {reason}")


def no_session(server: Server, reason: str) -> Unreachable:
    """sshd has refused to open a session."""
    return Unreachable(f"{server.name}: sshd opens no session: {reason}", "too many at once (MaxSessions)? try again")


def lost_before(server: Server, command: str) -> Unreachable:
    return Unreachable(f"{server.name}: the connection broke before `{command}` ran", OVERLOADED)


def not_started(server: Server, command: str) -> Unreachable:
    return Unreachable(f"{server.name}: no answer to `{command}` within {server.limit:g} s", OVERLOADED)
