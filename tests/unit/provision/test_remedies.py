"""Messages of ssh, sudo, package managers, systemd and Ansible have a remedy, and the first that fits is right."""

from __future__ import annotations

import pytest

from tfctl.errors import Exit
from tfctl.provision.remedies import remedy_for

#: What the programs print, and part of the remedy. Sources: apt-pkg, dpkg, dkms, dnf and ansible-core.
SAID = {
    "Timeout (12s) waiting for privilege escalation prompt: sudo-rs": "sudo-rs",
    "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct it.": "dpkg --configure -a",
    "E: Unmet dependencies. Try 'apt --fix-broken install' with no packages.": "apt --fix-broken install",
    "Failed to lock apt for exclusive operation: E:Could not get lock /var/lib/apt/lists/lock.": "package manager runs",
    "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 5423 (unattended-upgr)": "package",
    "waiting for lock on /var/run/yum.pid failed: lockfile is held by another process": "another package manager runs",
    "Error! Bad return status for module build on kernel: 6.1.0-18-amd64 (x86_64)": "make.log",
    "The repository 'http://mirror.example/debian bullseye-backports Release' does not have a Release file.": "sources",
    "Failed to update apt cache: E:The following signatures couldn't be verified: NO_PUBKEY A4B46996": "no valid key",
    "Failed to download metadata for repo 'x': Cannot download repomd.xml: All mirrors were tried": "cannot reach its",
    "Depsolve Error occurred: Problem: package nvidia-kmod-open-dkms-3:580.95 requires dkms": "do not have this",
    "E: Version '535.161.08-*' for 'nvidia-fabricmanager-535' was not found": "do not have this version",
    "no available installation candidate for nvidia-fabricmanager-535=535.161.08-*": "do not have this version",
    "/bin/sh: 1: /tmp/ansible-tmp-1/AnsiballZ_x.py: Permission denied": "noexec",
    "ansible-core requires a minimum of Python version 3.8. Current version: 3.6.8": "too old",
    "ModuleNotFoundError: No module named 'apt_pkg'": "ansible_python_interpreter",
    "Timed out waiting for last boot time check (timeout=1800)": "look at its console",
    "nvidia-fabricmanager.service failed because the control process exited": "journalctl -b -u UNIT",
    "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service": "Secure Boot",
    "[Errno 30] Read-only file system: '/opt/tfctl'": "read-only",
    "NVML: Driver/library version mismatch\nNVML library version: 570.158": "restart",
    # ssh
    "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures": "ssh-add -D",
    "kex_exchange_identification: Connection closed by remote host": "MaxStartups",
    '"System is booting up. Unprivileged users are not permitted to log in yet."': "/run/nologin exists",
    '"The system is going down. Unprivileged users are not permitted to log in anymore."': "/run/nologin exists",
    "WARNING: Your password has expired.\nPassword change required but no TTY available.": "chage -M -1 USER",
    "You are required to change your password immediately (administrator enforced).": "chage -M -1 USER",
    "Your account has expired; please contact your system administrator.": "chage -E -1",
    "This account is currently not available.": "usermod -s",
    "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their offer: ssh-rsa": "upgrade sshd",
    "Unable to negotiate with 10.0.0.1: no matching key exchange method found. Their offer: x": "upgrade sshd",
    'Load key "/home/me/.ssh/id": bad permissions\nops@10.0.0.1: Permission denied (publickey).': "chmod 600 the key",
    "@ WARNING: UNPROTECTED PRIVATE KEY FILE! @\nPermission denied (publickey).": "chmod 600 the key file",
    "Permissions 0644 for '/home/me/id' are too open.\nPermission denied (publickey).": "chmod 600 the key file",
    "Bad owner or permissions on /root/.ssh/config": "chmod 600 FILE",
    "no such identity: /home/me/id: No such file\nops@h: Permission denied (publickey).": "does not have the key file",
    'Load key "/home/me/id": invalid format\nops@h: Permission denied (publickey).': "ssh-keygen -y",
    'Load key "/home/me/id": error in libcrypto\nops@h: Permission denied (publickey).': "ssh-keygen -y",
    "ops@h: Permission denied (publickey,password).": "public key of ansible_ssh_private_key_file",
    "ops@10.0.0.1: Permission denied (keyboard-interactive).": "accepts no key",
    "ops@10.0.0.1: Permission denied (password,keyboard-interactive).": "accepts no key",
    'sign_and_send_pubkey: signing failed for RSA "x" from agent: agent refused operation': "unlock it (ssh-add)",
    'unix_listener: path "/very/long/abc" too long for Unix domain socket': "set TMPDIR",
    "subsystem request failed on channel 0\nConnection closed": "no sftp",
    "mux_client_request_session: session request failed: Session open refused by peer": "MaxSessions",
    "Connection to UNKNOWN port 65535 timed out": "jump host or proxy command",
    "Connection closed by UNKNOWN port 65535": "jump host or proxy command",
    "channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed": "AllowTcpForwarding",
    "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed": "from there that {host}",
    "ssh: connect to host 10.0.0.1 port 22: No route to host": "check that the machine is up",
    "ssh: connect to host 10.0.0.1 port 22: Connection refused": "start sshd there",
    "ssh: Could not resolve hostname gpu1: Temporary failure in name resolution": "ansible_host=10.0.0.1",
    "Connection timed out during banner exchange": "overloaded",
    "command-line: line 0: Bad configuration option: proxyjmp": "ssh -G",
    "to use the 'ssh' connection type with passwords, you must install the sshpass program": "ssh-copy-id",
    "bash: fork: retry: Resource temporarily unavailable": "too many processes",
    "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)": "does not have the locale",
    # sudo
    "sudo: sorry, you must have a tty to run sudo": "Defaults !requiretty",
    "Timeout (22s) waiting for privilege escalation prompt: ": "takes too long",
    "sudo: no tty present and no askpass program specified": "enter the sudo password with -K",
    "sudo: a terminal is required to read the password; either use the -S option": "-K",
    "Sorry, user ops is not allowed to execute '/bin/sh -c echo' as root on node1.": "let the login user of {host} use",
    "Sorry, user ops may not run sudo on node1.": "let the login user of {host} use sudo",
    "ops is not in the sudoers file.  This incident will be reported.": "let the login user of {host} use sudo",
    "sudo: /etc/sudoers is world writable": "visudo -c",
    "sudo: no valid sudoers sources found, quitting": "visudo -c",
    "sudo: /usr/bin/sudo must be owned by uid 0 and have the setuid bit set": "mode 4755",
    "sudo: account validation failure, is your account locked?": "chage -l",
    "/bin/sh: 1: sudo: not found": "install sudo",
    "sudo: unable to resolve host node1: Temporary failure in name resolution": "its own name",
    "sudo: unable to resolve host n1: Name or service not known\nsudo: a password is required": "-K",
    # Ansible, before a module runs
    "Failed to create temporary directory. In some cases, you may have been able to authenticate": "remote_tmp",
    "Failed to create temporary directory. stderr output: mkdir: cannot create '/x': No space left on device": "df -h",
    "python3-apt must be installed and visible from /usr/bin/python3.": "python3-apt",
    "Could not import the dnf python module using /usr/bin/python3.12 (3.12.1). Please install": "python3-dnf",
    "Aborting, target uses selinux but python bindings (libselinux-python) aren't installed!": "python3-libselinux",
    # apt and dpkg
    "GPG error: https://x InRelease: The public key is not available: NO_PUBKEY A4B469963BF863CC": "no valid key",
    "GPG error: https://x InRelease: signatures were invalid: EXPKEYSIG A4B469963BF863CC": "no valid key",
    "E:Conflicting values set for option Signed-By regarding source x: a != , E:The list of sources": "remove one of",
    "E: Malformed entry 1 in list file /etc/apt/sources.list.d/x.list (Component)": "that is named",
    "E: Release file for http://deb/InRelease is not valid yet (invalid for another 2h)": "clock",
    "E: Release file for http://deb/InRelease is expired (invalid since 3d). Updates": "clock",
    "certificate verify failed: certificate is not yet valid": "clock",
    "E: Repository 'http://deb x InRelease' changed its 'Suite' value from 'testing' to 'stable'": "releaseinfo-change",
    "E: Failed to fetch http://deb/x.deb  Hash Sum mismatch": "mirror is being updated",
    "E: You don't have enough free space in /var/cache/apt/archives/.": "free space",
    "Clearsigned file isn't valid, got 'NOSPLIT' (does the network require authentication?)": "proxy or login page",
    "Err:1 http://deb bookworm InRelease\n  Temporary failure resolving 'deb'": "DNS",
    "The certificate is NOT trusted. The certificate issuer is unknown.": "tfctl_ca_bundle",
    "E: Unable to correct problems, you have held broken packages.": "apt --fix-broken",
    "dpkg: error processing archive x.deb (--unpack):\n trying to overwrite '/a', which is also in b": "same file",
    "installed x package post-installation script subprocess returned error exit status 1": "package's own script",
    # dnf and rpm
    "This system is not registered with an entitlement server. You can use subscription-manager": "register {host}",
    'There are no enabled repositories in "/etc/yum.repos.d"': "repolist",
    "Curl error (6): Couldn't resolve host name for https://x/repomd.xml": "DNS",
    "Curl error (60): SSL peer certificate or SSH remote key was not OK for https://x": "tfctl_ca_bundle",
    "Curl error (28): Timeout was reached for https://x/repomd.xml": "cannot reach its package sources",
    "error: rpmdb open failed": "rpm --rebuilddb",
    "package x is filtered out by modular filtering": "module reset",
    "No match for argument: gcc-toolset-99": "do not have this version",
    "Problem: cannot install both a-1 and a-2": "prevents this version",
}


@pytest.mark.parametrize("said", SAID)
def test_a_message_of_a_program_has_its_remedy(said: str) -> None:
    found = remedy_for(said)
    assert found and SAID[said] in found.text.replace("\n", " ")


@pytest.mark.parametrize(
    "said", ["dpkg was interrupted", "Unmet dependencies", "waiting for privilege escalation prompt"]
)
def test_what_the_owner_of_the_host_has_to_repair_first_is_no_failure_of_provisioning(said: str) -> None:
    found = remedy_for(said)
    assert found and found.exit is Exit.PREFLIGHT
