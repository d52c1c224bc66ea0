"""What can be done about messages of other programs: ssh, sudo, apt and dnf. The first pattern that is found decides.

The texts are those of their sources and manuals. This machine means the one on which tfctl runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tfctl.errors import Exit
from tfctl.wording import Lines, lines_of


@dataclass(frozen=True)
class Remedy:
    """``text`` may contain {host}. ``exit``: the exit code of such a failure on a host that can be reached."""

    pattern: str
    text: str
    exit: Exit = Exit.FAILED

    def naming(self, host: str) -> str:
        """Return the text with the host's name filled in."""
        return Lines(*(line.replace("{host}", host) for line in lines_of(self.text)))


#: Also for the errors of tfctl's own connections.
IS_IT_UP = "check that the machine is up, that its address is correct, and that no firewall or VPN blocks it (ping)"
START_SSHD = "start sshd there (systemctl start ssh), or correct ansible_host and ansible_port"
GIVE_ADDRESS = "correct it, or give the address in the inventory: ansible_host=10.0.0.1"
TOO_MANY = (
    "its sshd may refuse connections for a while (MaxStartups, PerSourcePenalties), or a firewall rejects this "
    "machine: see `journalctl -u ssh` on the host"
)
#: Of PAM and the login shell, which refuse a user whose key sshd accepts.
LOGIN = (
    Remedy(
        r"unprivileged users are not permitted to log in|system is (booting up|going down)|/(run|etc|var/run)/nologin",
        "/run/nologin exists on {host}: wait until it has booted or shut down. If the file stays, somebody has "
        "created it: remove it, or log in as root",
    ),
    Remedy(
        r"password (has )?expired|password change required|change your password|password is (expired|aged)"
        r"|(administrator|root) enforced|authentication token is no longer valid",
        "the password of the login user has expired: log in to {host} as this user and set another one, or let it not "
        "expire (as root: chage -M -1 USER)",
    ),
    Remedy(
        r"your account (has )?(expired|is locked)|account .* has expired",
        "ask the owner of {host} to extend or unlock the account (as root: chage -E -1 USER)",
    ),
    Remedy(
        r"account is (currently )?not available|login is disabled",
        "the login user of {host} has a shell that ends at once: give it another one (usermod -s /bin/bash USER), or "
        "correct ansible_user",
    ),
)
#: Of ssh and its proxy command on this machine, and of sshd and the login on a host.
SSH = (
    Remedy(
        r"too long for unix domain socket|controlpath too long",
        "set TMPDIR to a directory with a shorter path, such as /tmp",
    ),
    Remedy(r"'?ssh'?: (command )?not found|no such file or directory: b?'ssh'", "install openssh-client here"),
    Remedy(
        r"bad configuration option|unsupported option|unknown (configuration )?option|bad configuration options"
        r"|percent_expand: |keyword \S+ extra arguments|^usage: ssh ",
        "correct the ssh arguments in the inventory, or ~/.ssh/config; to check it: ssh -G HOST",
    ),
    Remedy(
        r"bad owner or permissions on ",
        "that file on this machine must belong to you, and nobody else may write it: chmod 600 FILE",
    ),
    Remedy(
        r"bad permissions|unprotected private key file|permissions \d+ for .* are too open",
        "others can read the private key on this machine, so ssh does not use it: chmod 600 the key file",
    ),
    Remedy(
        r"no such identity|identity file .* not accessible",
        "this machine does not have the key file: correct ansible_ssh_private_key_file",
    ),
    Remedy(
        r"incorrect passphrase|enter passphrase for|no askpass program",
        "the private key has a passphrase, and nothing can ask for it: ssh-add the key file",
    ),
    Remedy(
        r"load key .*(invalid format|error in libcrypto|unsupported|is a directory)",
        "ssh cannot read the private key; to see whether it is one: ssh-keygen -y -f FILE",
    ),
    Remedy(
        r"too many authentication failures",
        "ssh offers more keys than {host} accepts: name the right one in the inventory (ansible_ssh_private_key_file), "
        "or remove the others from the agent (ssh-add -D)",
    ),
    Remedy(
        r"agent refused operation|signing failed|could not open a connection to your authentication agent",
        "the ssh agent does not sign with the key: unlock it (ssh-add), or touch the security token",
    ),
    Remedy(
        r"no mutual signature (algorithm|supported)|no more authentication methods to try.*rsa-sha2",
        "sshd of {host} accepts RSA keys only with SHA-1, which ssh does not use: log in with a key of type ed25519",
    ),
    Remedy(
        r"no matching (host key type|key exchange method|cipher|mac|compression)",
        "upgrade sshd of {host}; until then, allow what it offers in ~/.ssh/config, such as "
        "HostKeyAlgorithms +ssh-rsa or KexAlgorithms +diffie-hellman-group14-sha1",
    ),
    Remedy(
        r"certificate invalid|not a listed principal",
        "sign the key again, for this host or user and for a longer time (ssh-keygen -s)",
    ),
    Remedy(
        r"host key verification failed|remote host identification has changed|no .* host key is known",
        "compare {host}'s key with its owner, then correct the known_hosts file that the inventory names",
    ),
    *LOGIN,
    Remedy(
        r"sshpass|ssh password instead of a key",
        "tfctl logs in with keys only: install one (ssh-copy-id), and remove ansible_password from the inventory",
    ),
    Remedy(
        r"permission denied \((?![^)]*publickey)",
        "{host} accepts no key, but only what a person enters: let its sshd accept a key alone (PubkeyAuthentication, "
        "AuthenticationMethods)",
    ),
    Remedy(
        r"permission denied \([^)]*publickey|load key",
        "give {host} the public key of ansible_ssh_private_key_file, or correct ansible_user",
    ),
    Remedy(
        r"administratively prohibited|forwarding (is )?disabled|port forwarding .*refused",
        "sshd of the jump host does not forward connections: allow it there (AllowTcpForwarding, PermitOpen)",
    ),
    Remedy(
        r"stdio forwarding failed|channel \d+: open failed|unknown port 65535",
        "the jump host or proxy command does not reach {host}: run it alone, and check from there that {host} answers",
    ),
    Remedy(
        r"session open (refused|failed)|session request failed|maxsessions",
        "sshd of {host} opens no further session on a connection: raise MaxSessions there",
    ),
    Remedy(
        r"subsystem request failed",
        "sshd of {host} has no sftp: add it there (Subsystem sftp internal-sftp)",
    ),
    Remedy(
        r"(exec|shell|pty allocation) request failed",
        "sshd of {host} cannot start a program for this user: see journalctl -u ssh there",
    ),
    Remedy(
        r"connection timed out during banner exchange|timed out waiting for .*banner",
        "{host} accepts the connection, but its sshd does not answer: it may be overloaded or out of memory",
    ),
    Remedy(
        r"banner exchange: .*invalid format|invalid ssh identification string|banner line contains invalid",
        "what listens there is not sshd: correct ansible_host or ansible_port",
    ),
    Remedy(
        r"kex_exchange_identification|exceeded maxstartups|not allowed at this time|ssh_dispatch_run_fatal",
        TOO_MANY,
    ),
    Remedy(
        r"could not resolve hostname",
        GIVE_ADDRESS,
    ),
    Remedy(
        r"connect to .*connection refused",
        START_SSHD,
    ),
    Remedy(
        r"corrupted mac|message authentication code incorrect|bad packet length",
        "the network damages packets: look for a wrong MTU or a defective device between this machine and {host}",
    ),
    Remedy(r"connect to .*(timed out|no route|unreachable)|no route to host|connection timed out", IS_IT_UP),
    Remedy(
        r"banner exchange|connection (closed|reset)|failed to connect to the host|^ssh ended before"
        r"|server \S+ not responding|send disconnect: broken pipe",
        "check that {host} is up, and that its sshd listens at ansible_host and ansible_port",
    ),
)
#: Of sudo, and of Ansible, which runs it.
SUDO = (
    Remedy(
        r"waiting for privilege escalation prompt",
        "sudo of {host} takes too long, as with a slow name or directory service (time sudo -n true shows it), or asks "
        "in a form that Ansible does not read, as sudo-rs does: let the login user use sudo without a password, or "
        "select the other sudo (update-alternatives --config sudo)",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"must have a tty",
        "sudo of {host} requires a terminal: add a line to a file in /etc/sudoers.d there: Defaults !requiretty",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"incorrect (sudo )?password|incorrect password attempt",
        "the login user of {host} has another password: try again, with --limit if not all hosts have the same",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"(become|sudo) password|a password is required|no tty present|terminal is required to (read|authenticate)",
        Lines(
            "enter the sudo password with -K, or let the login user of {host} use sudo without one (NOPASSWD)",
            "jobs need no password in either case: provision permits the program tfctl-node to operators",
        ),
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"setuid bit|effective uid is not 0|no new privileges",
        "sudo of {host} cannot become root: reinstall it (its file belongs to root and has mode 4755), and check that "
        "its file system is not mounted nosuid",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"sudoers.*(world writable|owned by|bad permissions|is mode)|no valid sudoers sources|parse error"
        r"|sudoers.*syntax error|unable to initialize policy plugin|sudoers.*expected a ",
        "the sudoers files of {host} are not valid: visudo -c names the file, as root there",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"account validation failure|account or password is expired|pam (account management|authentication) error",
        "the account or the password of the login user is locked or has expired: chage -l USER on {host} shows it",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"unknown (user|uid)|not exist in the passwd database",
        "{host} does not find the login user any more: check its directory service (getent passwd USER)",
        Exit.PREFLIGHT,
    ),
    Remedy(r"sudo: (command )?not found", "install sudo on {host}, or log in as root", Exit.PREFLIGHT),
    Remedy(
        r"not in the sudoers|is not allowed to (execute|run)|may not run sudo|not allowed to use sudo",
        "let the login user of {host} use sudo, or log in as root",
        Exit.PREFLIGHT,
    ),
)
#: Of Ansible and the shell, before a module runs.
HOST = (
    Remedy(
        r"no space left on device|disk quota exceeded|don't have enough free space|at least \d+\w* more space needed",
        "free space on {host} (df -h shows where), then try again",
    ),
    Remedy(
        r"read-only file system",
        "the file system of {host} is mounted read-only, often after an error of the disk: see dmesg there",
    ),
    Remedy(
        r"fork: .*(resource temporarily unavailable|cannot allocate memory)|(can't|cannot|unable to) fork|fork failed",
        "the login user of {host} has too many processes (ulimit -u), or {host} has no free memory: end some",
    ),
    Remedy(
        r"failed to create temporary directory",
        "the login user cannot write to its home directory on {host}: set ansible_remote_tmp to another directory",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"no module named '(apt_pkg|apt|dnf|libdnf5?|rpm)'|python3?-apt must be installed"
        r"|could not import the (lib)?dnf5? python module|python bindings \(libselinux",
        "the Python of ansible_python_interpreter lacks a module of the system: use {host}'s /usr/bin/python3, with "
        "python3-apt, or with python3-dnf and python3-libselinux",
    ),
)
#: Of apt, dpkg, dnf and rpm.
PACKAGES = (
    Remedy(
        r"dpkg was interrupted",
        "finish what was interrupted: run on {host}: dpkg --configure -a",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"unmet dependencies|--fix-broken|held broken packages",
        "packages of {host} are installed in part: run there: apt --fix-broken install",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"could not get lock|dpkg frontend lock|is another process using it|failed to lock|lock\s?file is held"
        r"|waiting for (the )?lock|waiting for process with pid|can't create transaction lock",
        "another package manager runs on {host}, such as unattended-upgrades after a boot: wait until it ends, then "
        "try again",
    ),
    Remedy(
        r"is not valid yet|not yet valid|certificate has expired|not yet activated|created .* in the future"
        r"|expired \(invalid since|release file .*is expired",
        "a clock is wrong, or a mirror is no longer updated: compare `date -u` on {host} and on this machine with the "
        "real time, and set it",
    ),
    Remedy(
        r"conflicting values set for option signed-by",
        "two files in /etc/apt/sources.list.d of {host} name this source with different keys: remove one of them",
    ),
    Remedy(
        r"malformed (entry|line|stanza)|list of sources could not be read|not known on line|type '\S+' is not known",
        "correct the file in /etc/apt that is named, on {host}; to check it: apt-get update",
    ),
    Remedy(
        r"changed its '\w+' value",
        "accept it on {host}: apt-get update --allow-releaseinfo-change",
    ),
    Remedy(
        r"no_pubkey|expkeysig|keyexpired|revkeysig|signatures? couldn't be verified|gpg check failed"
        r"|public key .* is not (installed|available)|signatures were invalid|is not signed|bad gpg signature",
        "a package source of {host} has no valid key: `apt-get update` or `dnf makecache` there names it",
    ),
    Remedy(
        r"nosplit|got 'nodata'|does the network require authentication|proxy authentication required",
        "a proxy or login page answers in place of the package source of {host}: set tfctl_http_proxy and "
        "tfctl_https_proxy for it",
    ),
    Remedy(
        r"hash sum mismatch|file has unexpected size|mirror sync in progress|checksum doesn't match|digest mismatch",
        "the mirror is being updated, or a proxy keeps old files: try again in some minutes, or use another mirror",
    ),
    Remedy(
        r"does not have a release file|no longer has a release file",
        "a package source of {host} does not exist any more: correct or remove it in /etc/apt/sources.list.d",
    ),
    Remedy(
        r"method driver .* could not be found",
        "apt of {host} does not support https: apt-get install apt-transport-https",
    ),
    Remedy(
        r"system is not registered|subscription-manager|entitlement server",
        "register {host}, so that it has package sources: subscription-manager register",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"no enabled repositories|no repositories available|has no (enabled )?repositories",
        "{host} has no package sources: `dnf repolist --all` there shows those that are disabled",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"rpmdb open failed|db_runrecovery|database disk image is malformed|berkeley db|cannot open packages database",
        "the package database of {host} is damaged: rpm --rebuilddb there",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"(modular|exclude) filtering",
        "dnf of {host} hides the package: reset its module (dnf module reset NAME), or correct excludepkgs in dnf.conf",
    ),
    Remedy(
        r"trying to overwrite|file .* (from install of|conflicts with)|conflicts between attempted installs",
        "two packages contain the same file: remove the one that you do not need from {host}",
    ),
    Remedy(
        r"cannot install both|problem with installed package|conflicting requests|package \S+ conflicts with",
        "an installed package of {host} prevents this version: remove or update the one that is named",
    ),
    Remedy(
        r"no available installation candidate|no installation candidate|version '.*' for '.*' was not found"
        r"|depsolve error|nothing provides|no match for argument|unable to find a match|404  ?not found"
        r"|status code: 404",
        "the package sources of {host} do not have this version, or what it needs: update the lists there (apt-get "
        "update, dnf makecache), and add the source that has it",
    ),
    Remedy(r"held packages were changed", "list them on {host} (apt-mark showhold), apt-mark unhold, then try again"),
    Remedy(
        r"certificate is not trusted|certificate verification failed|ssl peer certificate|curl error \((60|77)\)",
        "{host} does not trust the certificate of its package source: name the CA in tfctl_ca_bundle",
    ),
    Remedy(
        r"temporary failure resolving|could(n't| not) resolve (host|proxy)|curl error \([56]\)",
        "{host} cannot resolve the name of its package source: check DNS there (resolvectl status), or its proxy",
    ),
    Remedy(
        r"failed to fetch|unable to locate package|failed to update apt cache|no package .* available"
        r"|failed to download metadata|all mirrors were tried|cannot prepare internal mirrorlist|curl error \(\d+\)"
        r"|cannot initiate the connection|could not connect to \S+:\d+",
        "{host} cannot reach its package sources: `apt-get update` or `dnf makecache` there shows why",
    ),
    Remedy(
        r"installed \S+ package .*-installation script|dpkg returned an error code|error processing (package|archive)"
        r"|scriptlet failed|transaction (failed|test error|check error)",
        "the package's own script or files failed: its messages are above; repair that on {host}, then run there: "
        "dpkg --configure -a, or dnf check",
    ),
)
#: Warnings. They say why something failed only if nothing else does.
NOTICES = (
    Remedy(
        r"sudo: unable to resolve host",
        "this is a warning of sudo: {host} does not know its own name. Add it to /etc/hosts there",
    ),
    Remedy(
        r"cannot change locale|failed to set locale|setting locale failed",
        "{host} does not have the locale of this machine: create it there, or do not send it (SendEnv in ssh_config)",
    ),
    Remedy(r"could not chdir to home directory", "create the home directory of the login user on {host}"),
    Remedy(
        r"could not create directory .*\.ssh|failed to add the host to the list of known hosts|update_known_hosts",
        "make ~/.ssh on this machine writable for you",
    ),
)
PROGRAMS = (
    *SUDO,
    *SSH,
    *HOST,
    *PACKAGES,
    Remedy(r"sudo: ", "let the login user of {host} use sudo", Exit.PREFLIGHT),
)


def login_refused(text: str) -> tuple[str, Remedy] | None:
    """Return the line with which a host refuses a user whose key it accepts, and the remedy, or None."""
    found = ((line.strip(), _first(LOGIN, line)) for line in text.splitlines())
    return next(((line, remedy) for line, remedy in found if remedy), None)


def remedy_for(text: str, more: Iterable[Remedy] = ()) -> Remedy | None:
    """Return the remedy for this output, or None if none is known. ``more``: those to prefer to those of programs."""
    notices = re.compile("|".join(each.pattern for each in NOTICES), re.IGNORECASE)
    causes = "\n".join(line for line in text.splitlines() if not notices.search(line))
    return _first((*more, *PROGRAMS), causes) or _first(NOTICES, text)


def _first(table: Iterable[Remedy], text: str) -> Remedy | None:
    return next((each for each in table if re.search(each.pattern, text, re.IGNORECASE | re.MULTILINE)), None)
