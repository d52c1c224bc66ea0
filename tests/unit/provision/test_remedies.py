"""Messages of package managers, of systemd and of Ansible have a remedy, and the first that fits is the right one."""

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
