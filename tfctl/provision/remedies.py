"""What can be done about failures of the roles' tasks, chosen by the first pattern found in their output.

What other programs say is in tfctl/remedies.py.
"""

from __future__ import annotations

from tfctl import remedies
from tfctl.errors import Exit
from tfctl.remedies import Remedy

_OWN = (
    Remedy(r"cannot log in by ssh to ", "run this as that user on {host}, with one of these hosts: ssh -v HOST true"),
    Remedy(r"load key \S*id_tfctl", "delete ~/.ssh/id_tfctl of the user on {host}: the next run creates another key"),
    Remedy(r"unknown user:? ", "create this user on {host}, or correct the inventory"),
    Remedy(r"no such file.*ssh-keygen", "install openssh-client on {host}"),
    Remedy(
        r"cannot run tfctl-node: ",
        "another rule of {host} overrides /etc/sudoers.d/tfctl: find it with sudo -l -U USER, and move it to a file "
        "that sudo reads earlier",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"checksum for .* did not match",
        "the download differs from the expected file: check your mirror, and do not bypass the check",
    ),
    Remedy(r"https?://\S+: request failed", "check that {host} can reach this URL, or name a mirror in the inventory"),
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
        r"python3?: (not found|no such file)|python3?: command not found|interpreter .* was not found",
        "install python3 on {host}, or name another with ansible_python_interpreter",
    ),
    Remedy(
        r"ansiballz_\S+: permission denied",
        "{host} executes no programs in that directory (mount option noexec): set ansible_remote_tmp to another one",
        Exit.PREFLIGHT,
    ),
    Remedy(
        r"requires( a minimum of)? python|syntaxerror: future feature",
        "/usr/bin/python3 of {host} is too old: upgrade its system",
    ),
    Remedy(
        r"/srv/.*operation not permitted|chown",
        "on the file server, make the UID of user tfctl (tfctl_uid) the owner of the directory, then try again",
    ),
    Remedy(
        r"bad return status for module build|dkms.* failed to build",
        "the module was not built for this kernel: on {host}, the end of the make.log that is named above says why. "
        "The kernel may be too new for this driver, or its headers may be missing",
    ),
    Remedy(
        r"key was rejected by service",
        "Secure Boot refuses the module: enrol the key of DKMS on {host} (mokutil --import), or turn Secure Boot off",
    ),
    Remedy(
        r"does not match the hash|hash mismatch|hashes are required",
        "the download does not match the lock file's hash: check your mirror, and do not bypass the check",
    ),
    Remedy(
        r"no matching distribution|could not find a version|max retries exceeded|connection broken"
        r"|\[errno -\d\] .*name resolution",
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
    Remedy(
        r"certificate verify failed(?!.*(not yet valid|has expired))",
        "name the CA of the index's certificate in pip's configuration (global.cert)",
    ),
    Remedy(
        r"waiting for (last boot time check|system to boot|test command)|timed out waiting for .*reboot",
        "{host} has not come back after its reboot: look at its console",
        Exit.UNREACHABLE,
    ),
    Remedy(
        r"control process exited|job for \S+ failed|unable to (re)?start service",
        "to see why, run on {host}: systemctl status UNIT; journalctl -b -u UNIT",
    ),
    Remedy(
        r"driver/library version mismatch",
        "restart {host}: the NVIDIA driver was replaced under the running kernel",
        Exit.PREFLIGHT,
    ),
    Remedy(r"failed after its reboot", "repair the host that failed, then provision with --reboot again"),
    Remedy(r"unit .* is masked", "unmask it on {host}: systemctl unmask UNIT"),
)


def remedy_for(text: str) -> Remedy | None:
    """Return the remedy for this output, or None if none is known."""
    return remedies.remedy_for(text, _OWN)
