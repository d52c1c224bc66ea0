from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tfctl.errors import BadFile
from tfctl.jobs import code as job_code
from tfctl.jobs.code import CodeArchive, pack, select
from tfctl.jobs.destination import Destination


def names(code: CodeArchive) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(code.data)) as archive:
        return archive.getnames()


def test_without_git_all_files_but_bytecode_are_packed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "train.pyc").write_text("")
    (tmp_path / "tfctl-output" / "digits").mkdir(parents=True)
    (tmp_path / "tfctl-output" / "digits" / "checkpoint").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a b\n%.txt").write_text("x")
    assert names(pack(tmp_path)) == ["sub/a b\n%.txt", "train.py"]


def test_with_git_the_files_that_it_lists_are_packed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("kept.py", "data.bin", ".gitignore", "gone.py"):
        (tmp_path / name).write_text("*.bin\n")
    subprocess.run(["git", "-C", tmp_path, "add", "gone.py"], check=True)
    (tmp_path / "gone.py").unlink()
    assert names(pack(tmp_path)) == [".gitignore", "kept.py"]


def test_only_the_named_folder_of_a_work_tree_is_packed(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "outside.py").write_text("")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("")
    assert names(pack(tmp_path / "job")) == ["train.py"]


def lose_repository(folder: Path) -> None:
    (folder / ".git").write_text("gitdir: /nonexistent/repository\n")


def empty_repository(folder: Path) -> None:
    (folder / ".git").mkdir()


def damage_index(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".git/index").write_bytes(b"x" * 100)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A directory with code below ``tmp_path``."""
    folder = tmp_path / "job"
    folder.mkdir()
    for name in ("train.py", "settings.json"):
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lose_repository, "not a git repository: /nonexistent/repository"),
        (empty_repository, "not a git repository"),
        (damage_index, "index file corrupt"),
    ],
)
def test_nothing_is_sent_if_git_cannot_read_the_repository(
    damage: Callable[[Path], None], reason: str, job: Path, tmp_path: Path
) -> None:
    damage(tmp_path)
    with pytest.raises(BadFile) as caught:
        select(job)
    where = f"{job} is in a git work tree ({tmp_path / '.git'})"
    assert caught.value.message.startswith(f"{where}, but git cannot list its files: {reason}")
    assert caught.value.remedy == f"try: git -C {job} status"


def test_nothing_is_sent_of_a_work_tree_that_belongs_to_another_user(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    with pytest.raises(BadFile, match=r"git cannot list its files: .*owne(d|rship)") as caught:
        select(job)
    assert caught.value.remedy.endswith(f": git config --global --add safe.directory {tmp_path}")


def test_git_is_needed_only_in_a_work_tree(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert select(job).names == ("settings.json", "train.py")
    empty_repository(tmp_path)
    with pytest.raises(BadFile, match="git cannot list its files: it is not installed") as caught:
        select(job)
    assert caught.value.remedy == "install git, or copy the code out of the work tree"


@pytest.mark.parametrize(
    ("script", "limit", "reason"),
    [("exec /bin/sleep 60", 0.2, "it ran longer than 0.2 s"), ("exit 3", 20.0, "it ended with status 3")],
)
def test_a_git_that_hangs_or_dies_matters_only_in_a_work_tree(
    script: str, limit: float, reason: str, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_code._git_names(job, "-cz", limit=limit) is None
    empty_repository(tmp_path)
    with pytest.raises(BadFile, match=reason):
        job_code._git_names(job, "-cz", limit=limit)


def test_remedy_is_the_advice_of_git_only_if_it_names_a_command(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a damaged repository is below a mount point, git says in a second line where its search has stopped."""
    said = "fatal: not a git repository\nStopping at filesystem boundary (GIT_DISCOVERY_ACROSS_FILESYSTEM not set).\n"
    (tmp_path / "git").write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 128\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    empty_repository(tmp_path)
    with pytest.raises(BadFile, match=r"git cannot list its files: not a git repository\n") as caught:
        select(job)
    assert caught.value.remedy == f"try: git -C {job} status"


def test_the_same_files_give_the_same_digest_and_a_mode_counts(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    first = pack(tmp_path).digest
    os.utime(tmp_path / "run.sh", (1, 1))
    assert pack(tmp_path).digest == first
    (tmp_path / "run.sh").chmod(0o755)
    assert pack(tmp_path).digest != first


SECRETS = [".env", ".env.production", "keys/id_rsa", "store.p12", "tls.pem"]


def with_secrets(folder: Path) -> Path:
    """A directory with each of SECRETS, and files that resemble them."""
    (folder / "keys").mkdir()
    for name in (*SECRETS, ".env.example", "train.py", "environment.sh"):
        (folder / name).write_text("x")
    (folder / "keys" / "id_rsa").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nx\n")
    (folder / "tls.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n-----BEGIN PRIVATE KEY-----\nx\n")
    (folder / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n")
    (folder / "keys" / "id_rsa.pub").write_text("ssh-rsa x\n")
    return folder


def test_files_that_look_like_secrets_are_left_out_and_named(tmp_path: Path) -> None:
    listing = select(with_secrets(tmp_path))
    assert listing.names == (".env.example", "ca.pem", "environment.sh", "keys/id_rsa.pub", "train.py")
    assert listing.left_out == tuple(SECRETS)
    (remark,) = listing.remarks
    assert ", ".join(SECRETS) in remark
    assert select(tmp_path, SECRETS).remarks == ()


def test_files_that_look_like_secrets_are_packed_if_git_tracks_them(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", with_secrets(tmp_path)], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", ".env", "keys"], check=True)
    listing = select(tmp_path)
    assert listing.left_out == (".env.production", "store.p12", "tls.pem")
    assert {".env", "keys/id_rsa"} < set(listing.names)


def test_an_included_file_is_packed_even_if_git_ignores_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", with_secrets(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text(".env\n")
    assert ".env" not in select(tmp_path).names
    assert ".env" in names(pack(tmp_path, include=[".env"]))


def test_the_file_of_variables_is_a_secret_that_needs_no_remark(tmp_path: Path) -> None:
    file = with_secrets(tmp_path) / "environment.sh"
    listing = select(tmp_path, SECRETS, file)
    assert (set(SECRETS) <= set(listing.names), file.name in listing.names, listing.remarks) == (True, False, ())
    assert file.name in select(tmp_path, [file.name], file).names


@pytest.mark.parametrize("tracked", [False, True])
def test_an_inventory_and_its_variables_are_packed_only_if_the_job_file_lists_them(
    tracked: bool, tmp_path: Path
) -> None:
    """Otherwise every job could read a password of sudo in it."""
    files = ("train.py", "hosts.ini", "group_vars/all.yml", "host_vars/node1/vault.yml", "data/group_vars/x")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("ansible_become_password: x\n")
    if tracked:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
        subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    inventory = tmp_path / "hosts.ini"
    listing = select(tmp_path, inventory=inventory)
    assert (listing.names, listing.remarks) == (("data/group_vars/x", "train.py"), ())
    assert "hosts.ini" in select(tmp_path, ["hosts.ini"], inventory=inventory).names
    assert select(tmp_path, inventory=tmp_path / "data").names == ("hosts.ini", "train.py")
    assert len(select(tmp_path, inventory=tmp_path).names) == 5, "the code is not left out"


def test_a_link_to_the_inventory_is_not_packed(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (tmp_path / "hosts.ini").write_text("node1\n")
    (folder / "hosts.ini").symlink_to("../hosts.ini")
    assert select(folder, inventory=folder / "hosts.ini").names == ()


@pytest.mark.parametrize("git", [False, True])
def test_results_of_pull_are_not_packed(git: bool, tmp_path: Path) -> None:
    if git:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "train.py").write_text("")
    with Destination(tmp_path / "digits-results", "digits") as destination:
        destination.write("output/node1/model", "weights")
    assert select(tmp_path).names == ("train.py",)


@pytest.mark.parametrize("git", [False, True])
def test_results_of_pull_beside_the_code_are_not_packed(git: bool, tmp_path: Path) -> None:
    if git:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "lib/output").mkdir(parents=True)
    (tmp_path / "lib/output/writer.py").write_text("")
    with Destination(tmp_path, "digits") as destination:
        for run in ("11111111", "22222222"):
            destination.write(f"{destination.named('output', run)}/node1/model", "weights")
            destination.write(f"{destination.named('attempt-1', run)}/worker-0.log", "line")
            destination.write(destination.named("status.json", run), "{}")
    assert select(tmp_path).names == (".gitignore", "lib/output/writer.py", "train.py")


def test_pull_leaves_a_gitignore_of_the_user_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n")
    with Destination(tmp_path, "digits"):
        pass
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


def test_an_included_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"code/include: .*/\.env is not a file"):
        select(tmp_path, [".env"])


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_the_owners_rights_to_a_file_are_packed(mode: int, tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("x")
    (tmp_path / "key.txt").chmod(mode)
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path).data)) as archive:
        assert archive.getmember("key.txt").mode == mode


def test_a_link_within_the_folder_is_packed_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "real").write_text("x")
    (tmp_path / "sub" / "link").symlink_to("../sub/real")
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path).data)) as archive:
        assert archive.getmember("sub/link").linkname == "../sub/real"


@pytest.fixture
def mine() -> Iterator[Path]:
    """A directory of somebody whom permissions hold: root, who may read everything, is nobody meanwhile."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        if root:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            if root:
                os.seteuid(0)


@pytest.mark.parametrize("closed", ["secret", "sub"])
def test_a_file_that_cannot_be_read_is_named(closed: str, mine: Path) -> None:
    (mine / "secret").write_text("x")
    (mine / "sub").mkdir()
    (mine / closed).chmod(0)
    with pytest.raises(BadFile, match=f"{closed}: cannot be read: Permission denied"):
        pack(mine)
    (mine / closed).chmod(0o700)


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "sub/../../secret"])
def test_a_link_out_of_the_folder_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(BadFile, match="outside the code"):
        pack(tmp_path)


def test_too_much_code_and_special_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(BadFile, match="larger than 1 MB"):
        pack(tmp_path, limit_mb=1)
    (tmp_path / "data").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="neither file nor directory nor link"):
        pack(tmp_path)


def repository(folder: Path, *names: str) -> Path:
    """Make a repository with these files, all of them committed."""
    subprocess.run(["git", "init", "-q", folder], check=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    git(folder, "add", "-f", ".")
    git(folder, "commit", "-qm", "x")
    return folder


def git(folder: Path, *words: str) -> None:
    own = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", "-C", folder, *own, *words], check=True, capture_output=True)


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """A work tree with a submodule, in which there is another one, and with a clone that git does not track."""
    inner = repository(tmp_path / "inner", "deep.py")
    library = repository(tmp_path / "library", "code.py", "tls.pem")
    git(library, "submodule", "--quiet", "add", str(inner), "inner")
    git(library, "commit", "-qm", "y")
    main = repository(tmp_path / "main", "train.py")
    git(main, "submodule", "--quiet", "add", str(library), "lib")
    git(main, "submodule", "--quiet", "update", "--init", "--recursive")
    git(main, "clone", "-q", str(library), "models")
    return main


def test_the_files_of_repositories_inside_the_code_are_packed(nested: Path) -> None:
    (nested / "models/.gitignore").write_text("*.bin\n")
    for name in ("new.py", "data.bin", "id_rsa"):
        (nested / "models" / name).write_text("")
    listing = select(nested)
    assert {name for name in listing.names if not name.rpartition("/")[2].startswith(".git")} == {
        "train.py", "lib/code.py", "lib/tls.pem", "lib/inner/deep.py", "models/code.py", "models/tls.pem",
        "models/new.py", "models/inner",
    }  # fmt: skip
    assert listing.left_out == ("models/id_rsa",)
    assert {"lib/inner/deep.py", "models/new.py"} < set(names(pack(nested)))
    assert "inner/deep.py" in names(pack(nested / "lib"))


def test_what_is_left_out_is_named_with_its_reason(nested: Path, tmp_path: Path) -> None:
    git(nested, "worktree", "add", "-q", "other")
    (nested / ".gitignore").write_text("ignored.py\n")
    for name in ("ignored.py", "id_rsa", "job.env", "hosts.ini"):
        (nested / name).write_text("")
    listing = select(nested, env_file=nested / "job.env", inventory=nested / "hosts.ini")
    assert listing.remarks[:2] == (
        "not sent to the hosts: models/inner, because this submodule is not checked out; run: "
        f"git -C {nested / 'models'} submodule update --init inner",
        "not sent to the hosts: other, because it is another work tree of a repository (git worktree)",
    )
    assert not any(name.startswith("other") for name in listing.names)
    for name, reason in (
        ("ignored.py", "git ignores it"),
        ("id_rsa", "it looks like a secret, and git does not track it"),
        ("job.env", "it is the `env_file` of the job"),
        ("hosts.ini", "it belongs to the inventory, which may contain passwords"),
        ("other/train.py", "other is not sent, because it is another work tree of a repository"),
        ("models/inner/deep.py", "models/inner is not sent, because this submodule is not checked out"),
    ):
        assert listing.reason(name)[0].startswith(reason)
    plain = tmp_path / "plain"
    (plain / "__pycache__").mkdir(parents=True)
    assert select(plain).reason("__pycache__/a.py")[0].startswith("tfctl sends no .git, __pycache__, tfctl-output")
