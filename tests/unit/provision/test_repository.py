"""The files that make NVIDIA's repository known to apt and dnf, as the role nvidia_repo writes them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.linked_collection import link_collection
from tests.unit.provision.apt_tree import AptTree
from tfctl.model import stacks
from tfctl.provision import ansible
from tfctl.provision.decide import apt_sources

ROLE = ansible.data_dir() / "roles/nvidia_repo"
#: Whether drivers of the repository are used.
DRIVERS = (False, True)
BASE = "https://mirror.example/compute/cuda/repos"
APT = {
    "etc/apt/sources.list.d/tfctl-nvidia.sources": f"""\
# Written by tfctl provision.
Types: deb
URIs: {BASE}/debian12/x86_64/
Suites: /
Signed-By: /usr/share/keyrings/tfctl-nvidia.asc
""",
    "etc/apt/preferences.d/tfctl-nvidia": """\
# Written by tfctl provision.
# NVIDIA CUDA is the label of its repository. The host of a mirror may have other repositories too.
# The container toolkit contains no driver.
Package: nvidia-container-* libnvidia-container*
Pin: release l=NVIDIA CUDA
Pin-Priority: 100

# Drivers of two origins conflict, so drivers of NVIDIA are used only if they were requested.
Package: *nvidia* cuda-drivers* libcuda1* libnvsdm* libxnvctrl*
Pin: release l=NVIDIA CUDA
Pin-Priority: -1

Package: cuda-* libcu* libnccl* libnp* libnv* gds-tools* nsight-*
Pin: release l=NVIDIA CUDA
Pin-Priority: 600

# Nothing else is taken from this repository.
Package: *
Pin: release l=NVIDIA CUDA
Pin-Priority: 100
""",
}
DNF = f"""\
[tfctl-nvidia]
baseurl = {BASE}/rhel9/x86_64/
exclude = nvidia-* kmod-nvidia* libnvidia-* cuda-drivers*
gpgcheck = 1
gpgkey = file:///etc/pki/rpm-gpg/tfctl-nvidia.asc
name = NVIDIA CUDA, added by tfctl provision
"""


def run(folder: Path, *tasks: dict[str, Any], **variables: object) -> None:
    """Run tasks with Ansible, with the variables of the role."""
    play = {
        "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks,
        "vars": {**variables, "ansible_python_interpreter": sys.executable},
        "vars_files": [str(ROLE / "vars/main.yml")],
    }  # fmt: skip
    (folder / "play.yml").write_text(json.dumps([play]))
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "play.yml"]
    settings = {**os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr


def test_apt_files_name_the_repository_and_pin_its_packages(tmp_path: Path) -> None:
    names = [name.removeprefix("etc/apt/") for name in APT]
    lookup = f"lookup('ansible.builtin.template', '{ROLE}/templates/etc/apt/%s.j2', template_vars={{'%s': %s}})"
    texts = {
        f"{drivers} {name}": "{{ " + lookup % (name, "nvidia_repo_drivers", str(drivers).lower()) + " }}"
        for drivers in DRIVERS
        for name in names
    }
    content = {"names": "{{ nvidia_repo_apt_files }}", **texts}
    write = {"ansible.builtin.copy": {"content": content, "dest": f"{tmp_path}/texts.json", "mode": "0644"}}
    given = {"nvidia_repo_packager": "apt-get", "nvidia_repo_url": URI, "nvidia_repo_source_file": ""}
    given["nvidia_repo_driver_branch"] = ""
    run(tmp_path, write, **given)
    found = json.loads((tmp_path / "texts.json").read_text())
    assert sorted(found.pop("names")) == sorted(names)
    assert found == {
        f"{drivers} {name}": text.replace("-1", "600") if drivers else text
        for drivers in DRIVERS
        for name, text in zip(names, APT.values(), strict=True)
    }


def repository(folder: Path, label: str, version: str, *names: str, depends: str = "") -> str:
    """Create a repository with packages of this version; return its line for apt's sources.

    ``depends``: what the last one of the packages depends on.
    """
    folder.mkdir()
    fields = f"Version: {version}\nArchitecture: amd64\nMaintainer: x\nDescription: x\nFilename: x\nSize: 1\n"
    text = "\n".join(f"Package: {name}\n{fields}SHA256: {'0' * 64}\n" for name in names)
    text += f"Depends: {depends}\n" if depends else ""
    (folder / "Packages").write_text(text)
    listed = f"{hashlib.sha256(text.encode()).hexdigest()} {len(text)} Packages"
    date = "Sat, 01 Jan 2022 00:00:00 UTC"
    (folder / "Release").write_text(f"Origin: {label}\nLabel: {label}\nDate: {date}\nSHA256:\n {listed}\n")
    return f"deb [trusted=yes] file:{folder} ./\n"


#: Packages that only NVIDIA's repository has, and the version that apt would install while its drivers are not used.
NVIDIAS = {
    "cuda-toolkit-12-2": "99", "nvidia-driver-580": "(none)", "nvidia-container-toolkit": "99",
    "libnvidia-container1": "99", "libglx-nvidia0": "(none)", "libegl-nvidia0": "(none)",
}  # fmt: skip


def test_pins_hold_for_nvidia_alone_where_one_mirror_also_has_the_distribution(tmp_path: Path) -> None:
    """Real apt-get reads both repositories, which have the same host."""
    names = ("bash", "libcuda1", "libnvidia-ml1")
    sources = repository(tmp_path / "debian", "Debian", "1", *names)
    sources += repository(tmp_path / "nvidia", "NVIDIA CUDA", "99", *names, *NVIDIAS)
    tree = AptTree(tmp_path / "host", sources)
    (tmp_path / "host/etc/preferences.d/tfctl-nvidia").write_text(APT["etc/apt/preferences.d/tfctl-nvidia"])
    tree.update()
    policy = tree.run("apt-cache", "policy", *names, *NVIDIAS).stdout
    found = dict(re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (.*)$", policy, re.MULTILINE))
    assert found == {**dict.fromkeys(names, "1"), **NVIDIAS}


def test_driver_of_nvidia_takes_no_library_from_the_distribution(tmp_path: Path) -> None:
    """It depends on its other packages in exact versions, whose names do not all begin with nvidia."""
    needed = ("xserver-xorg-video-nvidia-580", "libglx-nvidia0", "libegl-nvidia0", "libxnvctrl0")
    sources = repository(tmp_path / "debian", "Debian", "1", *needed)
    depends = ", ".join(f"{name} (= 99)" for name in needed)
    sources += repository(tmp_path / "nvidia", "NVIDIA CUDA", "99", *needed, "nvidia-driver-580", depends=depends)
    tree = AptTree(tmp_path / "host", sources)
    pins = APT["etc/apt/preferences.d/tfctl-nvidia"].replace("-1", "600")
    (tmp_path / "host/etc/preferences.d/tfctl-nvidia").write_text(pins)
    tree.update()
    assert sorted(tree.install(["nvidia-driver-580"])) == sorted([*needed, "nvidia-driver-580"])


def test_pins_are_written_before_the_repository_so_that_no_moment_is_without_them() -> None:
    files = yaml.safe_load((ROLE / "vars/main.yml").read_text())["nvidia_repo_apt_files"]
    assert 0 < files.index("preferences.d/") < files.index("sources.list.d/")


#: The keys of NVIDIA that the role contains.
KEYS = sorted((ROLE / "files").iterdir())


def packets(data: bytes) -> list[tuple[int, bytes]]:
    """Return the tag and the body of each OpenPGP packet of the oldest format (RFC 9580, section 4.2.2)."""
    found = []
    while data:
        assert data[0] & 0xC0 == 0x80 and data[0] & 3 < 2
        start = 2 + (data[0] & 3)
        end = start + int.from_bytes(data[1:start], "big")
        assert end <= len(data)
        found.append((data[0] >> 2 & 0xF, data[start:end]))
        data = data[end:]
    return found


@pytest.mark.parametrize("path", KEYS, ids=lambda path: path.name)
def test_key_file_of_the_role_contains_one_key_with_the_stated_fingerprint(path: Path) -> None:
    """apt and dnf accept packages that are signed with any key in the file."""
    lines = path.read_text("ascii").splitlines()
    assert (lines[0], lines[-1]) == tuple(f"-----{word} PGP PUBLIC KEY BLOCK-----" for word in ("BEGIN", "END"))
    assert sum(line.startswith("-----") for line in lines) == 2
    (primary, key), *others = packets(base64.b64decode("".join(lines[lines.index("") + 1 : -2]), validate=True))
    assert (primary, [kind for kind, _ in others]) == (6, [13, 2]), "a user ID and its signature follow the key"
    found = hashlib.sha1(b"\x99" + len(key).to_bytes(2, "big") + key).hexdigest().upper()
    assert found == stacks.nvidia().keys[path.stem].fingerprint


def test_role_contains_the_keys_that_the_data_calls_included() -> None:
    included = [name for name, key in stacks.nvidia().keys.items() if key.included]
    assert sorted(f"{name}.asc" for name in included) == [path.name for path in KEYS]


URI = f"{BASE}/debian12/x86_64/"
#: What NVIDIA's package cuda-keyring writes, as /etc/apt/sources.list.d/cuda-debian12-x86_64.list.
KEYRING = f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {URI} /\n"
STANZA = f"Types: deb\nURIs: {URI.rstrip('/')}\nSuites: /\nSigned-By: /usr/share/keyrings/cuda-archive-keyring.gpg\n"


class Owned:
    """A host with apt's sources of its owner, on which the role runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.apt = folder, folder / "host/etc"
        self.tree = AptTree(folder / "host", "")
        self.key = folder / "tfctl-nvidia.asc"
        self._copy_of_the_role()

    def _copy_of_the_role(self) -> None:
        """Copy the role. Tests need no root, so its tasks set no owner."""
        tasks = {f"roles/nvidia_repo/tasks/{path.name}": path.read_text() for path in (ROLE / "tasks").glob("*.yml")}
        without = {name: re.sub(r"^ +(owner|group): root\n", "", text, flags=re.M) for name, text in tasks.items()}
        link_collection(self.folder, without)

    def run(self, *words: str) -> int:
        """Run the role as in a user's own play, and keep its ``output``. Return the number of changes."""
        play = [
            {"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": ["tfctl.cluster.nvidia_repo"]}
        ]
        (self.folder / "play.yml").write_text(json.dumps(play))
        extra = {
            "nvidia_repo_packager": "apt-get", "nvidia_repo_url": URI, "nvidia_repo_key_file": "3bf863cc.asc",
            "nvidia_repo_apt_dir": str(self.apt), "nvidia_repo_key_path": str(self.key),
            "ansible_python_interpreter": sys.executable,
        }  # fmt: skip
        settings: dict[str, object] = {
            "ANSIBLE_COLLECTIONS_PATH": self.folder / "collections",
            "ANSIBLE_HOME": self.folder / "home", "ANSIBLE_NOCOLOR": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-e", json.dumps(extra), "play.yml"]
        variables = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        done = subprocess.run(
            [*command, *words], cwd=self.folder, env=variables, capture_output=True, text=True, timeout=90
        )
        self.output = done.stdout
        changes = re.search(r"changed=(\d+).* failed=0", done.stdout)
        assert done.returncode == 0 and changes, done.stdout + done.stderr
        return int(changes[1])

    def assert_pins_only(self) -> None:
        """Assert that apt reads its sources, in which the owner's entry is the only one, and that there are pins."""
        listed = self.tree.run("apt-get", "indextargets", "--format", "$(REPO_URI) $(SOURCESENTRY)")
        assert (listed.returncode, listed.stderr) == (0, "")
        assert (self.apt / "preferences.d/tfctl-nvidia").exists()
        assert not (self.apt / "sources.list.d/tfctl-nvidia.sources").exists()


def test_role_installs_the_key_that_it_contains_and_removes_another_key_from_the_file(tmp_path: Path) -> None:
    host, own = Owned(tmp_path), (ROLE / "files/3bf863cc.asc").read_bytes()
    host.key.write_bytes(own + (ROLE / "files/8793F200.asc").read_bytes())
    assert host.run() > 0
    assert (host.key.read_bytes(), host.key.stat().st_mode & 0o777) == (own, 0o644)
    assert f"Signed-By: {host.key}\n" in (host.apt / "sources.list.d/tfctl-nvidia.sources").read_text()


@pytest.mark.extended
def test_role_adds_no_entry_where_nvidias_own_package_has_added_the_repository(tmp_path: Path) -> None:
    """Two entries with different keys for one repository make apt refuse to read any source."""
    host = Owned(tmp_path)
    own = host.apt / "sources.list.d/cuda-debian12-x86_64.list"
    own.write_text(KEYRING)
    assert host.run("--check") > 0 and not (host.apt / "preferences.d/tfctl-nvidia").exists()
    assert host.run() > 0
    host.assert_pins_only()
    assert host.run() == 0
    own.write_text(f"# {KEYRING}")
    assert host.run() == 2, "the owner has disabled the entry, so the role adds its own and the key"
    assert (host.apt / "sources.list.d/tfctl-nvidia.sources").read_text().count(URI) == 1


@pytest.mark.extended
def test_role_removes_its_entry_when_the_owner_has_added_one(tmp_path: Path) -> None:
    host = Owned(tmp_path)
    host.run()
    (host.apt / "sources.list.d/cuda.sources").write_text(STANZA)
    refused = host.tree.run("apt-get", "indextargets")
    assert "Conflicting values set for option Signed-By" in refused.stderr
    assert host.run("--check") > 0 and (host.apt / "sources.list.d/tfctl-nvidia.sources").exists()
    assert host.run() == 1
    host.assert_pins_only()
    assert host.run() == 0


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("cuda.list", KEYRING, True),
        ("cuda.list", f"deb {URI.rstrip('/')} /\n", True),
        ("cuda.list", f"deb [ arch=amd64 signed-by=/x.gpg ] {URI} / # NVIDIA\n", True),
        ("cuda.list", f"# {KEYRING}", False),
        ("cuda.list", KEYRING.replace("debian12", "debian11"), False),
        ("cuda.list.save", KEYRING, False),
        ("cuda.sources", STANZA, True),
        ("cuda.sources", f"# NVIDIA\nTypes: deb\nURIs: https://other.example/\n  {URI}\nSuites: /\n", True),
        ("cuda.sources", f"{STANZA}Enabled: no\n", False),
        ("cuda.sources", f"enabled: False\n{STANZA}", False),
        ("cuda.sources", f"Types: deb\nURIs: https://other.example/\nEnabled: no\n\n{STANZA}", True),
        ("cuda.sources", STANZA.replace("URIs", "# URIs"), False),
    ],
)
def test_file_with_an_enabled_entry_of_the_repository_is_found(name: str, text: str, found: bool) -> None:
    path = f"/etc/apt/sources.list.d/{name}"
    assert apt_sources.holder({"/etc/apt/sources.list": "", path: text}, URI) == (path if found else "")


#: What apt-get lists of two stanzas and a line, and the files.
TARGETS = """\
http://a.example/debian/\tbookworm\tmain\tDebian\t/etc/apt/sources.list.d/debian.sources:2
http://a.example/debian/\tbookworm\tcontrib\tDebian\t/etc/apt/sources.list.d/debian.sources:2
http://a.example/debian/\tbookworm-updates\tmain\tDebian\t/etc/apt/sources.list:3
http://b.example/x/\tbookworm\tmain\tSomebody\t/etc/apt/sources.list.d/debian.sources:1
"""
FILES = {
    "/etc/apt/sources.list.d/debian.sources": """\
# Two stanzas.

Types: deb
URIs: http://b.example/x
Suites: bookworm
Components: main
Signed-By: /b.gpg

# The archive
Types: deb
URIs: http://a.example/debian
Suites: bookworm
Components: main contrib
signed-by:
 /debian.gpg
""",
    "/etc/apt/sources.list": """\
# text
deb http://a.example/debian bookworm-security main
deb [arch=amd64 signed-by=/updates.gpg] http://a.example/debian bookworm-updates main
""",
}
OWN = "/etc/apt/sources.list.d/tfctl-non-free.list"


def test_entries_for_missing_components_use_the_uris_and_keys_of_existing_ones() -> None:
    found = apt_sources.missing_components(TARGETS, FILES, ["contrib", "non-free"], OWN)
    assert found["faults"] == []
    assert found["content"].splitlines() == [
        "# Written by tfctl provision.",
        "deb [signed-by=/debian.gpg] http://a.example/debian/ bookworm non-free",
        "deb [signed-by=/updates.gpg] http://a.example/debian/ bookworm-updates contrib non-free",
    ]
    several = {name: text.replace(" /debian.gpg", " /debian.gpg\n /more.gpg") for name, text in FILES.items()}
    lines = apt_sources.missing_components(TARGETS, several, ["non-free"], OWN)["content"].splitlines()
    assert lines[1] == "deb [signed-by=/debian.gpg,/more.gpg] http://a.example/debian/ bookworm non-free"
    files = {name: re.sub(r"(?i)signed-by\S+(\n \S+)?", "", text) for name, text in FILES.items()}
    assert "deb http://a.example" in apt_sources.missing_components(TARGETS, files, ["non-free"], OWN)["content"]


def test_entries_written_by_tfctl_do_not_count_as_existing() -> None:
    own = f"http://a.example/debian/\tbookworm\tnon-free\tDebian\t{OWN}:2\n"
    before, after = (
        apt_sources.missing_components(listed, FILES, ["non-free"], OWN) for listed in (TARGETS, TARGETS + own)
    )
    assert before == after


def test_no_component_is_added_without_a_debian_archive_or_with_a_key_in_its_entry() -> None:
    embedded = {name: text.replace(" /debian.gpg", " -----BEGIN PGP") for name, text in FILES.items()}
    (fault,) = apt_sources.missing_components(TARGETS, embedded, ["non-free"], OWN)["faults"]
    assert fault["message"].startswith("The entry in /etc/apt/sources.list.d/debian.sources contains its key")
    (fault,) = apt_sources.missing_components(TARGETS.replace("Debian", "Other"), FILES, ["non-free"], OWN)["faults"]
    assert fault["message"] == "apt has no Debian archive among its package sources"


def archive_of_suites(folder: Path, *suites: str) -> None:
    """Create an archive of Debian with one package in the component main."""
    package = "Package: base\nVersion: 1\nArchitecture: amd64\nMaintainer: x\nDescription: x\nFilename: x\nSize: 1\n"
    listed = f"{hashlib.sha256(package.encode()).hexdigest()} {len(package)} main/binary-amd64/Packages"
    for suite in suites:
        (folder / f"dists/{suite}/main/binary-amd64").mkdir(parents=True)
        (folder / f"dists/{suite}/main/binary-amd64/Packages").write_text(package)
        fields = f"Origin: Debian\nCodename: {suite}\nComponents: main\nArchitectures: amd64\n"
        text = f"{fields}Date: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n {listed}\n"
        (folder / f"dists/{suite}/Release").write_text(text)


@pytest.mark.extended
def test_role_adds_components_to_the_sources_that_apt_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real apt-get lists a stanza that is not the first one of its file. Its lists are those of another mirror."""
    host = Owned(tmp_path)
    archive_of_suites(tmp_path / "debian", "bookworm", "bookworm-updates")
    stanzas = [f"Types: deb\nURIs: file:{tmp_path}/debian\nComponents: main\nSuites: "] * 2
    text = f"{stanzas[0]}bookworm\nSigned-By: /first.gpg\n\n{stanzas[1]}bookworm-updates\nSigned-By: /second.gpg\n"
    (host.apt / "sources.list.d/debian.sources").write_text(text)
    monkeypatch.setenv("APT_CONFIG", str(host.tree.configuration))
    with host.tree.configuration.open("a") as file:
        file.write('Acquire::AllowInsecureRepositories "true";\n')
    (tmp_path / "host/state/lists/old_mirror_Release").touch()
    own = host.apt / "sources.list.d/tfctl-non-free.list"
    components = {"nvidia_repo_components": ["main", "non-free"], "nvidia_repo_components_file": str(own)}
    words = ("-e", json.dumps({**components, "nvidia_repo_url": ""}))
    assert host.run(*words) == 1
    assert own.read_text().splitlines() == [
        "# Written by tfctl provision.",
        f"deb [signed-by=/first.gpg] file:{tmp_path}/debian/ bookworm non-free",
        f"deb [signed-by=/second.gpg] file:{tmp_path}/debian/ bookworm-updates non-free",
    ]
    assert host.run(*words) == 0
    own.unlink()
    assert host.run("--check", "--diff", "-v", *words) == 1 and not own.exists()
    assert f"file:{tmp_path}/debian" not in host.output, "a URL may have a password"


@pytest.mark.extended
def test_dnf_file_names_the_repository_and_excludes_drivers(tmp_path: Path) -> None:
    for drivers in DRIVERS:
        (tmp_path / str(drivers)).mkdir()
    tasks = [
        {
            "name": "Write",
            "ansible.builtin.include_tasks": str(ROLE / "tasks/dnf.yml"),
            "vars": {"nvidia_repo_drivers": drivers, "nvidia_repo_dnf_dir": f"{tmp_path}/{drivers}"},
        }
        for drivers in DRIVERS
    ]
    run(tmp_path, *tasks, nvidia_repo_packager="dnf", nvidia_repo_url=f"{BASE}/rhel9/x86_64/")
    for drivers in DRIVERS:
        wanted = "".join(line for line in DNF.splitlines(True) if not (drivers and "exclude" in line))
        assert (tmp_path / str(drivers) / "tfctl-nvidia.repo").read_text().strip() == wanted.strip()
