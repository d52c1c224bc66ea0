"""The role nvidia_library unpacks an archive with the requested hash, and restores its files after a change."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.linked_collection import link_collection

pytestmark = pytest.mark.timeout(300)

#: Runs the tasks twice. The second time, they must change nothing.
PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact: {pkg_mgr: "{{ found }}", cacheable: true}
      when: found is defined
    - ansible.builtin.include_role: &archive
        name: tfctl.cluster.nvidia_library
        tasks_from: archive
    - ansible.builtin.assert:
        that: nvidia_library_compared.rc != 0
    - ansible.builtin.include_role: *archive
      when: not ansible_check_mode
    - ansible.builtin.assert:
        that: nvidia_library_compared.rc == 0
      when: not ansible_check_mode
"""
#: Runs the tasks after the archive twice, as two runs do.
CONFIGURE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: &configure
        name: tfctl.cluster.nvidia_library
        tasks_from: configure
    - ansible.builtin.include_role: *configure
"""
#: A fake of the CUDA installer: a shell script with the options of the real one.
RUNFILE = """#!/bin/sh
set -e
test "$1 $2 $4" = "--silent --toolkit --override"
to=${3#--toolkitpath=}
mkdir -p "$to/lib64"
chmod 777 "$to/lib64"
id -u > "$to/user"
echo code > "$to/lib64/libcudart.so.12"
echo "$to" > "$to/place"
touch "$TMPDIR/here" "$HOME/here"
"""


def archive(path: Path, members: dict[str, str], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o666
            file.addfile(info, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            file.addfile(info)
    return path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def unpack(
    folder: Path, source: Path, *words: str, kind: str = "tar", sha256: str = "", play: str = PLAY, **more: str
) -> str:
    """Run the tasks that unpack an archive into folder/cudnn/8; return the output of ansible-playbook.

    ``more``: variables.
    """
    (folder / "play.yml").write_text(play)
    # A fake, since only root can update the cache of the loader.
    program(folder / "bin/ldconfig", f"echo ldconfig >>{folder}/calls")
    variables = {
        "nvidia_library_archive_url": source.as_uri(), "nvidia_library_archive_kind": kind,
        "nvidia_library_archive_sha256": sha256 or hashlib.sha256(source.read_bytes()).hexdigest(),
        "nvidia_library_archive_dir": f"{folder}/cudnn/8", "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable, **more,
    }  # fmt: skip
    settings = {
        **os.environ, "ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1",
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    run = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-e", json.dumps(variables)]
    done = subprocess.run(
        [*run, *words, "play.yml"], cwd=folder, env=settings, capture_output=True, text=True, timeout=200
    )
    return done.stdout + done.stderr


def changes(output: str) -> int:
    found = re.search(r"changed=(\d+) .*failed=0 ", output)
    assert found, output
    return int(found[1])


def remove_a_link(place: Path) -> None:
    (place / "lib/libcudnn.so.8").unlink()


def edit_a_file(place: Path) -> None:
    (place / "lib/libcudnn.so.8.9").write_text("edited")


@pytest.mark.extended
@pytest.mark.parametrize("harm", [remove_a_link, edit_a_file])
def test_archive_is_unpacked_once_and_again_after_damage(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    links = {"cuda/lib64/libcudnn.so.8": "libcudnn.so.8.9"}
    source, place = archive(tmp_path / "cudnn.tgz", {"cuda/lib64/libcudnn.so.8.9": "code"}, links), tmp_path / "cudnn/8"
    assert changes(unpack(tmp_path, source, "--check")) == 1
    assert not place.exists()
    assert changes(unpack(tmp_path, source)) > 1
    assert (place / "lib/libcudnn.so.8").read_text() == "code"
    assert (place / "lib/libcudnn.so.8.9").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in place.parent.iterdir()] == ["8"]
    harm(place)
    assert changes(unpack(tmp_path, source)) > 1
    assert (place / "lib/libcudnn.so.8").read_text() == "code"


@pytest.mark.extended
def test_cache_of_the_loader_is_updated_also_after_an_interrupted_run(tmp_path: Path) -> None:
    """That run may have written its files, and ended before it updated the cache. Then nothing changes in this one."""
    source = archive(tmp_path / "nccl.tgz", {"nccl/lib/libnccl.so.2": "code"})
    assert changes(unpack(tmp_path, source, play=CONFIGURE, **nccl(tmp_path))) == 0
    assert (tmp_path / "calls").read_text() == "ldconfig\n" * 2


def nccl(folder: Path) -> dict[str, str]:
    """Return variables for NCCL 2.21.5, whose loader configuration is in a directory of the test."""
    (folder / "ld.so.conf.d").mkdir()
    own = {"nvidia_library_loader": f"{folder}/ld.so.conf.d", "nvidia_library_soname": "libnccl.so.2"}
    return {**own, "nvidia_library_name": "nccl", "nvidia_library_version": "2.21.5"}


@pytest.mark.extended
def test_loader_forgets_other_versions_with_the_same_soname(tmp_path: Path) -> None:
    """It would load the one whose file has the first name."""
    source, variables = archive(tmp_path / "nccl.tgz", {"nccl/lib/libnccl.so.2": "code"}), nccl(tmp_path)
    for name, soname in {
        "tfctl-nccl-2.16.5": "libnccl.so.2", "tfctl-nccl-3.0.1": "libnccl.so.3", "tfctl-nccl-2.21.5": "libnccl.so.2",
        "tfctl-cuda-12.2.2": "libcudart.so.12", "mine": "libnccl.so.2",
    }.items():  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / soname).touch()
        (tmp_path / f"ld.so.conf.d/{name}.conf").write_text(f"/nowhere\n{tmp_path}/{name}\n")
    assert changes(unpack(tmp_path, source, "--check", play=CONFIGURE, **variables)) == 2
    assert changes(unpack(tmp_path, source, play=CONFIGURE, **variables)) == 1
    left = sorted(path.stem for path in (tmp_path / "ld.so.conf.d").iterdir())
    assert left == ["mine", "tfctl-cuda-12.2.2", "tfctl-nccl-2.21.5", "tfctl-nccl-3.0.1"]


#: A fake of the role packages that fails with the packages that it is to install.
PACKAGES = """
- ansible.builtin.fail:
    msg: "{{ packages_names | join(' ') }} is to be installed"
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    ("found", "given", "package"),
    [("dnf", "auto", "xz"), ("apt", "auto", "xz-utils"), ("dnf", "dnf", "xz"), ("apt", "apt-get", "xz-utils")],
)
def test_xz_is_installed_by_its_name_in_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str, given: str, package: str
) -> None:
    """``found``: the package manager in Ansible's facts."""
    program(tmp_path / "bin/xz", "exit 127")
    fakes = {"roles/packages": None, "roles/packages/tasks/main.yml": PACKAGES}
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(link_collection(tmp_path, fakes)))
    source = archive(tmp_path / "cudnn.txz", {"cuda/lib64/libcudnn.so.8.9": "code"})
    output = unpack(tmp_path, source, nvidia_library_packager=given, found=found)
    assert f"{package} is to be installed" in output, output


@pytest.mark.extended
def test_archive_with_a_wrong_hash_is_refused_and_the_installed_one_stays(tmp_path: Path) -> None:
    source = archive(tmp_path / "nccl.tgz", {"nccl/lib/libnccl.so.2": "code"})
    assert changes(unpack(tmp_path, source)) > 1
    output = unpack(tmp_path, source, sha256="1" * 64)
    assert "failed=1" in output and f"not {'1' * 64}, and was not installed" in output
    assert (tmp_path / "cudnn/8/lib/libnccl.so.2").read_text() == "code"
    assert [path.name for path in (tmp_path / "cudnn").iterdir()] == ["8"]


@pytest.mark.extended
def test_archive_writes_nothing_outside_its_directory(tmp_path: Path) -> None:
    source = archive(tmp_path / "evil.tgz", {"cuda/lib/good": "x", "cuda/../../evil": "x"})
    unpack(tmp_path, source)
    assert not list(tmp_path.rglob("evil"))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that every user can enter. Without root, fakes of setpriv and chown change no user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        if os.geteuid() != 0:
            program(Path(folder, "bin/setpriv"), 'shift 4; exec "$@"')
            program(Path(folder, "bin/chown"), "")
        yield Path(folder)


@pytest.mark.extended
def test_runfile_is_run_by_nobody_with_the_final_path(open_folder: Path) -> None:
    runfile, place = open_folder / "cuda_12.2.2_linux.run", open_folder / "cudnn/8"
    runfile.write_text(RUNFILE)
    # Only root can run it as another user.
    own = {"nvidia_library_uid": str(os.geteuid()), "nvidia_library_gid": str(os.getegid())}
    more = {} if os.geteuid() == 0 else own
    assert changes(unpack(open_folder, runfile, kind="runfile", **more)) > 1
    assert (place / "place").read_text().strip() == str(place)
    assert (place / "lib/libcudart.so.12").read_text() == "code\n"
    assert [path.name for path in place.parent.iterdir()] == ["8"]
    user = 65534 if os.geteuid() == 0 else os.geteuid()
    assert (place / "user").read_text() == f"{user}\n"
    owners = {path.stat().st_uid for path in (place, *place.rglob("*"))}
    assert owners == {os.geteuid()}, "nobody can change what was installed"
    assert (place / "lib64").stat().st_mode & 0o7777 == 0o755
    runfile.write_text("#!/bin/sh\necho 'no room' >&2; exit 1\n")
    output = unpack(open_folder, runfile, kind="runfile", **more)
    assert "no room" in output and "failed=1" in output
