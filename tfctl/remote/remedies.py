"""Remedies for failures of Ansible's own tasks, chosen by the first pattern found in the output."""

from __future__ import annotations

import re

# HOST stands for the host's name.
_REMEDIES = (
    (
        r"host key verification failed|remote host identification has changed|no .* host key is known",
        "compare HOST's key with its owner, then correct the known_hosts file that the inventory names",
    ),
    (
        r"permission denied \((publickey|password|keyboard)|no such identity|load key",
        "give HOST the public key of ansible_ssh_private_key_file, or correct ansible_user",
    ),
    (
        r"missing sudo password|a password is required|incorrect sudo|not in the sudoers|sudo: .*not found",
        "let the login user of HOST use sudo without a password (NOPASSWD), for provisioning at least",
    ),
    (
        r"connect to host .*(timed out|no route|refused|unreachable)|could not resolve hostname|banner exchange"
        r"|connection (closed|reset|timed out)|failed to connect to the host",
        "see that HOST is up, and that ansible_host and ansible_port are where its sshd listens",
    ),
    (
        r"python3?: (not found|no such file)|python3?: command not found|interpreter .* was not found",
        "install python3 on HOST, or name another with ansible_python_interpreter",
    ),
    (r"requires python|syntaxerror: future feature", "HOST's /usr/bin/python3 is too old: upgrade its system"),
    (r"no space left on device|disk quota exceeded", "free space on HOST (df -h says where), then run it again"),
    (
        r"/srv/.*operation not permitted|chown",
        "on the file server give the directory to the number of the user tfctl (tfctl_uid), then run it again",
    ),
    (
        r"could not get lock|dpkg frontend lock|is another process using it",
        "another apt is at work on HOST: wait for its end, then run it again",
    ),
    (r"held packages were changed", "apt-mark showhold on HOST names them: apt-mark unhold, then run it again"),
    (
        r"failed to fetch|unable to locate package|failed to update apt cache|no package .* available",
        "HOST does not reach its package sources: see its apt or dnf settings",
    ),
    (
        r"do not match the hash|hash mismatch|hashes are required",
        "other bytes came than the lock names: find out whose they are, and do not go around it",
    ),
    (
        r"no matching distribution|could not find a version|max retries exceeded|name resolution|connection broken",
        "this machine does not reach a package index that has the wheels: see `pip config list`",
    ),
    (r"horovod could not be built", "the compiler's words are above; tfctl_horovod=false provisions without Horovod"),
    (r"certificate verify failed", "name the CA of the index's certificate in pip's configuration (global.cert)"),
    (r"unit .* is masked", "HOST has this unit masked: systemctl unmask it"),
)


def remedy_for(text: str) -> str:
    """Return the remedy for this output, or "" if none is known."""
    found = (remedy for pattern, remedy in _REMEDIES if re.search(pattern, text, re.IGNORECASE))
    return next(found, "")
