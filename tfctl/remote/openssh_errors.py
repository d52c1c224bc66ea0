"""Find in the log of an `ssh -v` why it could not connect."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from tfctl.errors import BadFile, TfctlError, Unreachable
from tfctl.remote import key_files, known_hosts, refusals
from tfctl.remote.ssh_config import Server

_NUMBERS = {os.strerror(number): number for number in errno.errorcode}
_CERTIFICATE = "-cert-v01@openssh.com"


def of_timeout(server: Server, log: str) -> Unreachable:
    """Return the error for an `ssh` that has not logged in in time."""
    if not server.proxy and "Connection established" not in log:
        return refusals.not_connected(server, TimeoutError())
    if "Remote protocol version" not in log:
        return refusals.silent_at_first(server)
    if "SSH2_MSG_NEWKEYS received" not in log:
        return refusals.silent_in_key_exchange(server)
    return refusals.silent_in_login(server)


def of_ended(server: Server, log: str) -> TfctlError:
    """Return the error for an `ssh` that has ended before it logged in."""
    log = log.replace("\r", "")
    return (
        _of_configuration(server, log)
        or refusals.not_let_in(server, _without_debugging(log))
        or _of_network(server, log)
        or _of_host_key(server, log)
        or _of_login(server, log)
        or _of_key_exchange(server, log)
    )


def _without_debugging(log: str) -> str:
    return "\n".join(line for line in log.splitlines() if not line.startswith("debug"))


def _of_configuration(server: Server, log: str) -> TfctlError | None:
    if found := re.search(
        r"^.*(Bad configuration option|unsupported option|Bad owner or permissions).*$", log, re.M | re.I
    ):
        return BadFile(
            f"{server.name}: ssh refuses its arguments or configuration: {found[0]}", f"try: ssh -G {server.address}"
        )
    return None


def _of_network(server: Server, log: str) -> TfctlError | None:
    if found := re.search(r"^ssh: Could not resolve hostname .*?: (.+)$", log, re.M):
        return refusals.name_not_found(server, found[1])
    if found := re.search(r"^ssh: connect to (?:host|address) .+ port \d+: (.+)$", log, re.M):
        number = _NUMBERS.get(found[1], 0)
        timed_out = number in (0, errno.ETIMEDOUT)
        return refusals.not_connected(server, TimeoutError() if timed_out else OSError(number, found[1]))
    return None


def _of_host_key(server: Server, log: str) -> TfctlError | None:
    key = re.search(r"Server host (?:key|certificate): (\S+) ([^\s,]+)", log)
    if "Host key verification failed" not in log or key is None:
        return None
    kind, fingerprint = key[1].removesuffix(_CERTIFICATE), key[2]
    if "REVOKED HOST KEY" in log:
        return known_hosts.revoked(server, fingerprint)
    if found := re.search(r"Certificate invalid: (.+)$", log, re.M):
        return refusals.certificate_invalid(server, found[1])
    return known_hosts.mismatch(server, kind, fingerprint, known_hosts.known(server))


def _of_login(server: Server, log: str) -> TfctlError | None:
    denied = re.search(r"Permission denied \((.*)\)|Too many authentication failures", log)
    if denied is None:
        return None
    for name in server.keys:
        if error := _of_key_file(server, name, log):
            return error
    return refusals.key_refused(server, denied[1] or "")


def _of_key_file(server: Server, name: str, log: str) -> Unreachable | None:
    """Return why the key file ``name`` was not offered, or None if it was."""
    if f"for '{name}' are too open" in log:
        return refusals.key_file_open(server, name)
    if re.search(rf"Offering public key: {re.escape(name)} .*agent$", log, re.MULTILINE):
        return None
    try:
        if not key_files.is_public(name) and key_files.is_locked(name):
            return refusals.key_file_locked(server, name)
    except FileNotFoundError:
        return None if Path(f"{name}.pub").exists() else refusals.key_file_missing(server, name)
    except OSError:
        return None
    return refusals.key_file_unusable(server, name) if f'Load key "{name}": ' in log else None


def _of_key_exchange(server: Server, log: str) -> TfctlError:
    lines = [line for line in _without_debugging(log).splitlines() if line]
    if re.search(r"Connection timed out( during banner exchange)?$", log, re.M):
        return of_timeout(server, log)  # ssh has noticed its own ConnectTimeout first
    if found := re.search(r"Unable to negotiate with .*?: (.+)$", log, re.M):
        return refusals.no_common_algorithm(server, found[1])
    if found := re.search(r"banner line \d+: (.+)$", log, re.M):
        return refusals.not_sshd(server, found[1])
    own = r"kex_exchange_identification: |banner exchange: |Connection (closed|reset) |OpenSSH_|ssh_dispatch_run_fatal"
    if server.proxy and (messages := [line for line in lines if not re.match(own, line)]):
        return refusals.proxy_failed(server, messages[-1])
    if "Remote protocol version" not in log:
        return refusals.closed_at_first(server)
    reason = lines[-1] if lines else ""
    if "SSH2_MSG_NEWKEYS received" not in log:
        return refusals.key_exchange_ended(server, reason)
    return Unreachable(f"{server.name}: {server.place}: ssh ended: {reason}", "run `ssh -v` to this host for details")
