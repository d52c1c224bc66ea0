"""What can be done about failures of Ansible's own tasks, chosen by the first pattern found in their output."""

from __future__ import annotations

import re
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


_REMEDIES = (
    Remedy(r"cannot log in by ssh to ", "run this as that user on {host}, with one of these hosts: ssh -v HOST true"),
    Remedy(r"load key \S*id_tfctl", "delete ~/.ssh/id_tfctl of the user on {host}: the next run creates another key"),
    Remedy(r"unknown user:? ", "create this user on {host}, or correct the inventory"),
    Remedy(r"no such file.*ssh-keygen", "install openssh-client on {host}"),
    Remedy(
        r"host key verification failed|remote host identification has changed|no .* host key is known",
        "compare {host}'s key with its owner, then correct the known_hosts file that the inventory names",
    ),
    Remedy(
        r"permission denied \((publickey|password|keyboard)|no such identity|load key",
        "give {host} the public key of ansible_ssh_private_key_file, or correct ansible_user",
    ),
    Remedy(
        r"cannot run tfctl-node: ",
        "another rule of {host} overrides /etc/sudoers.d/tfctl: find it with sudo -l -U USER, and move it to a file "
        "that sudo reads earlier",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"waiting for privilege escalation prompt",
        "sudo of {host} asks in a form that Ansible does not read, as sudo-rs does: let the login user use sudo "
        "without a password, or select the other sudo (update-alternatives --config sudo)",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"checksum for .* did not match",
        "the download differs from the expected file: check your mirror, and do not bypass the check",
    ),
    Remedy(r"https?://\S+: request failed", "check that {host} can reach this URL, or name a mirror in the inventory"),
    Remedy(
        r"incorrect sudo password",
        "the login user of {host} has another password: try again, with --limit if not all hosts have the same",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"(become|sudo) password|a password is required",
        Lines(
            "enter the sudo password with -K, or let the login user of {host} use sudo without one (NOPASSWD)",
            "jobs need no password in either case: provision permits the program tfctl-node to operators",
        ),
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"not in the sudoers|sudo: .*not found",
        "let the login user of {host} use sudo, or log in as root",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"the (user|group) tfctl has the id",
        "remove that user or group from {host}, or set tfctl_uid to its number for all hosts (they share files)",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"tfctl_operators: there is no user",
        "create the account on {host}, or correct tfctl_operators in the inventory",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"tfctl_operators: \S+ is a user of tfctl itself",
        "name the users who start jobs in tfctl_operators",
        Exit.BAD_FILE,
    ),
    Remedy(r"already exists as a", "find out on {host} what it is, move it away, then try again"),
    Remedy(r"tfctl_ports: .*range|^validation of arguments failed", "correct it in the inventory", Exit.BAD_FILE),
    Remedy(
        r"so the firewall would reject",
        "give that host an address in the inventory: ansible_host or tfctl_address",
        Exit.BAD_FILE,
    ),
    Remedy(
        r"firewalld is active",
        "let firewalld accept the cluster's hosts (docs/host-services.md says how), "
        "and set tfctl_firewall=false for {host}",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"the table inet tfctl of nftables does not contain", "find out what else changes it: nft monitor on {host}"
    ),
    Remedy(r"is not a URL such as http", "write it as http://HOST:PORT in the inventory", Exit.BAD_FILE),
    Remedy(r"the proxy .* does not answer", "start it, or correct its address in the inventory", Exit.PREFLIGHT),
    Remedy(
        r"tfctl_shared_source .* is not ",
        "write in the inventory what is mounted: HOST:/PATH for nfs, USER@HOST:/PATH for sshfs",
        Exit.BAD_FILE,
    ),
    Remedy(
        r"nothing is mounted at ",
        "mount it on {host}, or set tfctl_shared_storage to nfs or sshfs",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"is mounted from .*, not from ",
        "unmount it on {host}, or set tfctl_shared_storage to existing",
        Exit.PREFLIGHT,
    ),
    Remedy(r"which the mount would hide", "move these files away (ls -A shows them on {host})", Exit.PREFLIGHT),
    Remedy(r"/dev/fuse is missing", "load the module fuse on {host} (modprobe fuse), or use nfs", Exit.PREFLIGHT),
    Remedy(
        r"/\.tfctl-\w{8}: permission denied",
        "on the file server, make the UID of user tfctl (tfctl_uid) the owner of the directory",
    ),
    Remedy(
        r"^/\S+: no answer for \d+ s",
        "check that the file server of the shared directory answers: run findmnt and dmesg on {host}",
    ),
    Remedy(r"is not the directory that .* has: ", "check what is mounted there on {host}: findmnt -T DIRECTORY"),
    Remedy(
        r"unable to (re)?start service \S+\.mount",
        "check that the file server is up and exports the directory to {host}, whose journal has the error of mount",
    ),
    Remedy(
        r"unable to stop service \S+\.mount",
        "stop the jobs on {host} and end what else uses the directory (fuser -vm DIRECTORY shows it), then try again: "
        "the new options need another mount",
    ),
    Remedy(
        r"keeps the clock, and only chrony",
        "configure the servers of that service, and remove tfctl_ntp_servers from the inventory",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"the clock is not synchronized",
        "check that {host} can reach the time servers on UDP port 123; to see its offset: chronyc tracking",
    ),
    Remedy(
        r"connect to host .*(timed out|no route|refused|unreachable)|could not resolve hostname|banner exchange"
        r"|connection (closed|reset|timed out)|failed to connect to the host|^ssh ended before",
        "check that {host} is up, and that its sshd listens at ansible_host and ansible_port",
    ),
    Remedy(
        r"python3?: (not found|no such file)|python3?: command not found|interpreter .* was not found",
        "install python3 on {host}, or name another with ansible_python_interpreter",
    ),
    Remedy(
        r"ansiballz_\S+: permission denied",
        "{host} executes no programs in that directory (mount option noexec): set ansible_remote_tmp to another one",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"no module named '(apt_pkg|apt|dnf|libdnf|rpm)'",
        "the Python of ansible_python_interpreter lacks the package manager's module: use {host}'s /usr/bin/python3",
    ),
    Remedy(
        r"requires( a minimum of)? python|syntaxerror: future feature",
        "/usr/bin/python3 of {host} is too old: upgrade its system",
    ),
    Remedy(r"no space left on device|disk quota exceeded", "free space on {host} (df -h shows where), then try again"),
    Remedy(
        r"read-only file system",
        "the file system of {host} is mounted read-only, often after an error of the disk: see dmesg there",
    ),
    Remedy(
        r"/srv/.*operation not permitted|chown",
        "on the file server, make the UID of user tfctl (tfctl_uid) the owner of the directory, then try again",
    ),
    Remedy(
        r"dpkg was interrupted",
        "finish what was interrupted: run on {host}: dpkg --configure -a",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"unmet dependencies|--fix-broken",
        "packages of {host} are installed in part: run there: apt --fix-broken install",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"bad return status for module build|dkms.* failed to build",
        "the module was not built for this kernel: on {host}, the end of the make.log that is named above says why. "
        "The kernel may be too new for this driver, or its headers may be missing",
    ),
    Remedy(
        r"could not get lock|dpkg frontend lock|is another process using it|failed to lock|lock\s?file is held"
        r"|waiting for (the )?lock|waiting for process with pid",
        "another package manager runs on {host}, such as unattended-upgrades after a boot: wait until it ends, then "
        "try again",
    ),
    Remedy(
        r"key was rejected by service",
        "Secure Boot refuses the module: enrol the key of DKMS on {host} (mokutil --import), or turn Secure Boot off",
    ),
    Remedy(
        r"no_pubkey|signatures couldn't be verified|gpg check failed|public key .* is not installed",
        "a package source of {host} has no valid key: `apt-get update` or `dnf makecache` there names it",
    ),
    Remedy(
        r"does not have a release file",
        "a package source of {host} does not exist any more: correct or remove it in /etc/apt/sources.list.d",
    ),
    Remedy(
        r"no available installation candidate|version '.*' for '.*' was not found|depsolve error|nothing provides",
        "the package sources of {host} do not have this version, or what it needs: update the lists there (apt-get "
        "update, dnf makecache), and add the source that has it",
    ),
    Remedy(r"held packages were changed", "list them on {host} (apt-mark showhold), apt-mark unhold, then try again"),
    Remedy(
        r"failed to fetch|unable to locate package|failed to update apt cache|no package .* available"
        r"|failed to download metadata|all mirrors were tried",
        "{host} cannot reach its package sources: `apt-get update` or `dnf makecache` there shows why",
    ),
    Remedy(
        r"does not match the hash|hash mismatch|hashes are required",
        "the download does not match the lock file's hash: check your mirror, and do not bypass the check",
    ),
    Remedy(
        r"no matching distribution|could not find a version|max retries exceeded|name resolution|connection broken",
        "this machine cannot reach a package index that has the wheels: check `pip config list`",
    ),
    Remedy(
        r"horovod could not be built",
        "the compiler's messages are above; tfctl_horovod=false provisions without Horovod",
    ),
    Remedy(
        r"ran longer than [\d.]+ s and was killed",
        "run it by hand on {host} to see what it waits for (a lock, the network, a driver), then try again",
    ),
    Remedy(r"certificate verify failed", "name the CA of the index's certificate in pip's configuration (global.cert)"),
    Remedy(
        r"waiting for (last boot time check|system to boot|test command)|timed out waiting for .*reboot",
        "{host} has not come back after its reboot: look at its console",
        Exit.UNREACHABLE,
    ),
    Remedy(
        r"control process exited|job for \S+ failed|unable to (re)?start service",
        "to see why, run on {host}: systemctl status UNIT; journalctl -b -u UNIT",
    ),
    Remedy(r"failed after its reboot", "repair the host that failed, then provision with --reboot again"),
    Remedy(r"unit .* is masked", "unmask it on {host}: systemctl unmask UNIT"),
    Remedy(r"sudo: ", "let the login user of {host} use sudo", Exit.PREFLIGHT),
)


def remedy_for(text: str) -> Remedy | None:
    """Return the remedy for this output, or None if none is known."""
    return next((remedy for remedy in _REMEDIES if re.search(remedy.pattern, text, re.IGNORECASE)), None)
