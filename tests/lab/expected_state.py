"""The state in which each role leaves a host, as testinfra sees it: one function per role, with the role's name.

A function fails where the host is in another state. A test calls it after the role has run; damages the host and calls
`is_violated`; lets the role repair the host, and calls the function again. The role preflight has no function, because
it installs nothing: test_provision.py and test_provision_faults.py test what it refuses.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from testinfra.host import Host

from tfctl.node import states

STACKS = "/opt/tfctl/stacks"
#: A program that prints each file of the installed packages that is missing or whose size differs from its RECORD.
PRINT_DAMAGED_FILES = """
import os, sys
from importlib import metadata
for each in metadata.distributions(path=sys.argv[1:] or sys.path):
    for file in each.files or ():
        path = str(file.locate())
        if "__pycache__" not in path and (not os.path.exists(path) or file.size not in (None, os.path.getsize(path))):
            print(path)
"""


def is_violated(state: Callable[..., None], *arguments: object) -> None:
    """Assert that the host is not in this state, so that a test shows that the function can fail."""
    with pytest.raises(AssertionError):
        state(*arguments)


def job_host(host: Host) -> None:
    user = host.user("tfctl")
    assert (user.uid, user.gid, user.home, user.shell) == (880, 880, "/var/lib/tfctl/home", "/usr/sbin/nologin")
    assert "ops" in host.group("tfctl-admin").members
    assert host.user("tfctl-guard").shell == "/usr/sbin/nologin"
    assert host.user("tfctl-guard").groups == ["tfctl-guard"]
    is_file(host, "/usr/local/sbin/tfctl-node", 0o755)
    is_file(host, "/etc/sudoers.d/tfctl", 0o440, '%tfctl-admin ALL=(root) NOPASSWD: /usr/local/sbin/tfctl-node ""')
    is_file(host, "/etc/sudoers.d/tfctl", 0o440, "Defaults!/usr/local/sbin/tfctl-node !requiretty, !log_input")
    is_file(host, "/etc/systemd/journald.conf.d/tfctl.conf", 0o644, "Storage=persistent")
    is_file(host, "/etc/systemd/journald.conf.d/tfctl.conf", 0o644, "SystemKeepFree=")
    is_file(host, "/etc/needrestart/conf.d/tfctl.conf", 0o644, "$nrconf{override_rc}")
    is_directory(host, "/var/lib/tfctl/jobs", 0o755)
    is_directory(host, "/srv/tfctl", 0o2770, "tfctl")
    sent = host.file("/usr/local/lib/tfctl/current/tfctl_node/states.py")
    assert sent.exists and sent.sha256sum == hashlib.sha256(Path(states.__file__).read_bytes()).hexdigest()
    assert host.service("systemd-journald").is_running


def python_env(host: Host, home: str, version: str) -> None:
    """The CPython tree that was sent is complete, belongs to root, and runs for every user."""
    is_directory(host, home, 0o755)
    assert host.file(f"{home}/lib/python{version}/ssl.py").is_file
    program = "import ssl, sys; print(sys.version)"
    output = host.check_output(
        f"setpriv --reuid=65534 --clear-groups {home}/bin/python{version} -I -c {shlex.quote(program)}"
    )
    assert output.startswith(f"{version}.")


def python_env_packages(host: Host, *names: str) -> None:
    assert [name for name in names if not host.package(name).is_installed] == []


def tensorflow(host: Host, stack: str, python: str) -> None:
    link = host.file(f"{STACKS}/{stack}")
    assert link.is_symlink and link.linked_to.startswith(f"{STACKS}/{stack}-")
    is_directory(host, link.linked_to, 0o755)
    assert host.file(f"{link.linked_to}/lib/python{python}/site-packages/tensorflow/__init__.py").is_file
    assert host.check_output("%s/bin/python -I -c %s", link.linked_to, PRINT_DAMAGED_FILES) == ""


def py_spy(host: Host) -> None:
    is_file(host, "/opt/tfctl/py-spy/py-spy", 0o755)
    assert host.check_output("/opt/tfctl/py-spy/py-spy --version").startswith("py-spy ")


def requirements(host: Host, path: str, module: str) -> None:
    is_directory(host, path, 0o755)
    is_file(host, f"{path}/tfctl-requirements.json", 0o644)
    assert host.file(f"{path}/{module}/__init__.py").is_file


def openmpi(host: Host, version: str) -> None:
    """The Open MPI of the distribution."""
    assert host.package("openmpi-bin").is_installed
    assert host.package("openmpi-bin").version.startswith(version)
    assert host.check_output("mpirun --version").startswith(f"mpirun (Open MPI) {version}")


def openmpi_source(host: Host, version: str, prefix: str, stack: str) -> None:
    """An Open MPI that was built from source; the programs in the stack are links to it."""
    is_directory(host, prefix, 0o755)
    for name in ("mpirun", "orted", "mpicc"):
        link = f"{STACKS}/{stack}/bin/{name}"
        assert host.check_output("readlink %s", link) == f"{prefix}/bin/{name}"
    assert host.check_output(f"{prefix}/bin/mpirun --version").startswith(f"mpirun (Open MPI) {version}")
    assert host.file(f"{prefix}/lib/libmpi.so").is_symlink
    assert not host.file("/opt/tfctl/openmpi/.build").exists


def horovod(host: Host, stack: str, python: str) -> None:
    path_file = host.file(f"{STACKS}/{stack}/lib/python{python}/site-packages/tfctl-horovod.pth")
    assert path_file.exists
    (home,) = path_file.content_string.splitlines()
    is_directory(host, home, 0o755)
    assert len(host.file(f"{home}/horovod/tensorflow").listdir()) > 3
    assert host.check_output("%s/bin/python -I -c %s %s", f"{STACKS}/{stack}", PRINT_DAMAGED_FILES, home) == ""


def toolchain(host: Host, gcc: int) -> None:
    for name in (f"gcc-{gcc}", f"g++-{gcc}", "make"):
        assert host.package(name).is_installed and host.exists(name), name
    assert host.package(f"g++-{gcc}").version.startswith(f"{gcc}.")


def nvidia_driver(host: Host, branch: str) -> None:
    names = ("libcuda1", "nvidia-smi", "nvidia-kernel-dkms", "nvidia-persistenced")
    are_held(host, dict.fromkeys(names, f"{branch}."))
    assert host.package("libcuda1").version == host.package("nvidia-kernel-dkms").version
    is_file(host, "/etc/modprobe.d/tfctl-nouveau.conf", 0o644, "blacklist nouveau")
    is_file(host, "/etc/apt/apt.conf.d/52tfctl-nvidia", 0o644, '"libcuda1";')
    is_file(host, "/etc/systemd/system/tfctl_nvidia.service", 0o644, "ExecStart=/usr/bin/nvidia-modprobe -u -c=0")
    drop_in = "/etc/systemd/system/nvidia-persistenced.service.d/tfctl.conf"
    is_file(host, drop_in, 0o644, "ExecStartPost=/usr/bin/nvidia-smi --persistence-mode=1")
    is_loadable(host, "libcuda.so.1")
    assert host.package("linux-headers-amd64").is_installed
    for name in ("tfctl_nvidia", "nvidia-persistenced"):
        service = host.service(name)
        assert service.is_running and service.is_enabled
    assert host.file("/run/nvidia-persistenced/socket").exists
    assert host.check_output("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader") == "Enabled"
    for name in ("nvidiactl", "nvidia0", "nvidia-uvm"):
        assert host.file(f"/dev/{name}").exists, name


def nvidia_repo(host: Host, uri: str, key: bytes) -> None:
    is_file(host, "/usr/share/keyrings/tfctl-nvidia.asc", 0o644)
    assert host.file("/usr/share/keyrings/tfctl-nvidia.asc").content == key
    is_file(host, "/etc/apt/sources.list.d/tfctl-nvidia.sources", 0o644, f"URIs: {uri}")
    is_file(host, "/etc/apt/preferences.d/tfctl-nvidia", 0o644, "Pin-Priority: 600")


def library(host: Host, packages: Mapping[str, str], *libraries: str) -> None:
    are_held(host, packages)
    is_loadable(host, *libraries)


cuda = cudnn = nccl = library


def proxy(host: Host, address: str, authority: Path | None = None) -> None:
    is_file(host, "/etc/tfctl/proxy.env", 0o600, f"http_proxy={address}")
    is_file(host, "/etc/apt/apt.conf.d/95tfctl-proxy", 0o600, f'Acquire::http::Proxy "{address}";')
    if authority:
        is_file(host, "/usr/local/share/ca-certificates/tfctl.crt", 0o644, authority.read_text().strip())
        assert authority.read_text().splitlines()[5] in host.file("/etc/ssl/certs/ca-certificates.crt").content_string


def time_sync(host: Host, server: str) -> None:
    assert host.package("chrony").is_installed
    is_file(host, "/etc/chrony/chrony.conf", 0o644, f"server {server} iburst")
    service = host.service("chrony")
    assert service.is_running and service.is_enabled


def firewall(host: Host, ports: str) -> None:
    assert host.package("nftables").is_installed
    is_file(host, "/etc/tfctl/firewall.nft", 0o644, f"elements = {{ {ports} }}")
    is_file(host, "/etc/systemd/system/nftables.service.d/tfctl.conf", 0o644, "nft -f /etc/tfctl/firewall.nft")
    service = host.service("tfctl_firewall")
    assert service.is_running and service.is_enabled
    assert f"elements = {{ {ports} }}" in host.check_output("nft list table inet tfctl")


def shared_storage(host: Host, place: str, source: str) -> None:
    mount = host.mount_point(place)
    assert mount.exists and (mount.filesystem, mount.device) == ("fuse.sshfs", source)
    unit = host.service(f"{place.strip('/').replace('/', '-')}.mount")
    assert unit.is_running and unit.is_enabled
    is_file(host, f"/etc/systemd/system/{place.strip('/').replace('/', '-')}.mount", 0o644, f"What={source}")


def dataset(host: Host, place: str, files: Mapping[str, str]) -> None:
    """These files with these hashes and no others. Their archive is kept, so that other hosts can copy it."""
    assert sorted(host.check_output("cd %s; find . -type f -not -name '.tfctl*' -printf '%%P\\n'", place).split()) == [
        *sorted(files)
    ]
    assert {name: host.file(f"{place}/{name}").sha256sum for name in files} == files
    assert len(host.file("/var/lib/tfctl/datasets/.archives").listdir()) == 1


def ssh_mesh(host: Host, user: str, others: Sequence[str]) -> None:
    folder = f"/home/{user}/.ssh"
    is_directory(host, folder, 0o700, user)
    is_file(host, f"{folder}/id_tfctl", 0o600, owner=user)
    for name in others:
        is_file(host, f"{folder}/known_hosts_tfctl", 0o600, f"{name},", owner=user)
        is_file(host, f"{folder}/authorized_keys", 0o600, f" tfctl {name}\n", owner=user)


def is_file(host: Host, path: str, mode: int, text: str = "", owner: str = "root") -> None:
    file = host.file(path)
    assert file.is_file, path
    assert (file.user, oct(file.mode)) == (owner, oct(mode)), path
    assert not text or text in file.content_string, path


def is_directory(host: Host, path: str, mode: int, owner: str = "root") -> None:
    file = host.file(path)
    assert file.is_directory, path
    assert (file.user, file.group, oct(file.mode)) == (owner, owner, oct(mode)), path


def are_held(host: Host, packages: Mapping[str, str]) -> None:
    """Installed, in a version that begins so, and nothing but tfctl changes that."""
    there = {name: host.package(name) for name in packages}
    assert [name for name, each in there.items() if not each.is_installed] == []
    assert [name for name, each in there.items() if not each.version.startswith(packages[name])] == []
    assert {*packages} <= {*host.check_output("apt-mark showhold").split()}


def is_loadable(host: Host, *libraries: str) -> None:
    """The loader finds the libraries by name, as the Python of a job loads them."""
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    assert [name for name in libraries if host.run("python3 -c %s %s", load, name).failed] == []
