"""Stacks on this machine: made once, by real uv, from a fake package index with small wheels."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_index import serving, wheel
from python_mirror import archive, entry, listing

from tests.unit.local.small_stack import PYTHON, Site
from tfctl.cli.main import run
from tfctl.errors import Exit, PreflightFailed
from tfctl.local import cached, installer
from tfctl.local.environments import Environment, Environments
from tfctl.provision import uv_pythons


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    (tmp_path / "index").mkdir()
    with serving(tmp_path / "index") as address:
        yield Site(tmp_path, monkeypatch, address)


def made(site: Site, said: list[str]) -> Environment:
    """Return the environment after the run that has made or used it."""
    environments = Environments(said.append, None)
    environment = environments.environment(site.stack(), "cpu")
    environments.store.release()
    return environment


def printed(environment: Environment, code: str, **variables: str) -> str:
    words = [str(environment.interpreter), "-c", code]
    return subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, **variables}).stdout


def refused(site: Site, python: str = PYTHON) -> str:
    """Return why the stack cannot be installed. Nothing may be left of it."""
    with pytest.raises(PreflightFailed) as raised:
        Environments(lambda _: None, None).environment(site.stack(python=python), "cpu")
    assert site.left() == []
    assert raised.value.remedy
    return str(raised.value)


def test_a_stack_is_installed_once_under_the_name_that_hosts_use_and_later_needs_no_index(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    first = made(site, said)
    assert first.path.name == site.stack().environment("cpu", PYTHON)
    assert printed(first, "import tensorflow; print(tensorflow.__version__)") == "2.15.1\n"
    assert len(said) == 2 and said[0].startswith(f"installing mine (TensorFlow 2.15.1, edition cpu, Python {PYTHON})")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PATH", "/nowhere")
    assert made(site, said) == first and len(said) == 2


def test_two_runs_at_once_install_a_stack_once(site: Site) -> None:
    said: list[str] = []
    stack = site.stack()
    every = [Environments(said.append, None) for _ in range(3)]
    threads = [threading.Thread(target=each.environment, args=(stack, "cpu")) for each in every]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line.partition(" ")[0] for line in said].count("installing") == 1
    assert site.left() == [stack.environment("cpu", PYTHON)]


@pytest.mark.usefixtures("site")
def test_a_run_that_waits_says_so_and_takes_over_if_the_other_one_fails() -> None:
    said: list[str] = []
    began, fail = threading.Event(), threading.Event()

    def never(_part: Path) -> None:
        began.set()
        fail.wait(20)
        raise PreflightFailed("no", "")

    def first() -> None:
        store = cached.Store(said.append)
        with contextlib.suppress(PreflightFailed):
            store.take("stacks", "one", "is installing one", never)
        store.release()  # as when a process ends

    thread = threading.Thread(target=first)
    thread.start()
    began.wait(20)
    threading.Timer(0.3, fail.set).start()
    path = cached.Store(said.append).take("stacks", "one", "is installing one", lambda part: part.mkdir())
    thread.join()
    assert (path / cached.MARKER).exists()
    assert said and {*said} == {"another tfctl run is installing one: waiting for it"}


def test_what_a_killed_run_has_left_is_replaced(site: Site) -> None:
    name = site.stack().environment("cpu", PYTHON)
    part = site.cache / f"tfctl/run/stacks/.{name}.part"
    (part / "bin").mkdir(parents=True)
    (part / "bin/python").write_text("half")
    made(site, [])
    assert site.left() == [name]


def test_an_environment_whose_python_is_gone_is_made_anew(site: Site) -> None:
    environment = made(site, [])
    environment.interpreter.unlink()
    environment.interpreter.symlink_to("/nowhere/python")
    assert printed(made(site, []), "import tensorflow") == ""


def test_packages_of_a_requirements_file_are_added_behind_those_of_the_stack(site: Site) -> None:
    wheel(site.wheels, "frames", "1.0", modules={"frames.py": "NAME = 'frames 1.0'\n", "tensorflow/keras.py": "1 / 0"})
    (site.folder / "requirements.txt").write_text("frames\n")
    said: list[str] = []
    environments = Environments(said.append, None)
    environment = environments.environment(site.stack(), "cpu")
    packages = environments.packages(site.folder / "requirements.txt", environment)
    code = "import frames, tensorflow.keras; print(frames.NAME)"
    assert printed(environment, code, TFCTL_REQUIREMENTS=str(packages)) == "frames 1.0\n"
    assert len(packages.name) == 12 and "installing the packages of requirements.txt for mine" in said
    (site.wheels / "frames-1.0-py3-none-any.whl").unlink()
    assert environments.packages(site.folder / "requirements.txt", environment) == packages


def test_without_an_index_the_error_names_it_and_another_way(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://user:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    text = refused(site)
    assert "the packages of mine cannot be downloaded from http://127.0.0.1:9/simple/tensorflow-cpu/" in text
    assert "--python active" in text and "secret" not in text and "\n\n" not in text


def test_a_wheel_with_another_hash_is_not_installed(site: Site) -> None:
    site.stack()
    wheel(site.wheels, "tensorflow_cpu", "2.15.1", modules={"tensorflow/__init__.py": "1"})
    before = site.wheel
    lock = site.folder / f"stacks/locks/mine-cpu-{PYTHON}.txt"
    text = lock.read_text()
    site.wheel = before
    stack = site.stack()
    lock.write_text(text)
    with pytest.raises(PreflightFailed, match=r"[Hh]ash"):
        Environments(lambda _: None, None).environment(stack, "cpu")
    assert site.left() == []


def test_variables_of_uv_do_not_change_what_is_installed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OVERRIDE", "CONSTRAINT", "PROJECT", "WORKING_DIR", "TARGET"):
        monkeypatch.setenv(f"UV_{name}", "/nowhere")
    monkeypatch.setenv("UV_VENV_SEED", "1")
    monkeypatch.setenv("UV_LINK_MODE", "symlink")
    monkeypatch.setenv("UV_EXCLUDE_NEWER", "2015-01-01")
    monkeypatch.setenv("UV_CACHE_DIR", "")
    environment = made(site, [])
    assert not [path for path in environment.path.rglob("site-packages/tensorflow/*") if path.is_symlink()]


def test_a_password_in_a_setting_is_not_shown(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://user:secret@")
    assert "secret" not in refused(site)


def test_modules_in_the_current_directory_are_not_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.folder / "pip.py").write_text("open('ran', 'w')")
    (site.folder / "uv.toml").write_text("not toml")
    monkeypatch.chdir(site.folder)
    made(site, [])
    assert not (site.folder / "ran").exists()


def test_a_stack_that_takes_too_long_to_import_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfctl.local.environments._IMPORT_LIMIT_S", 0.2)
    site.wheel = wheel(site.wheels, "tensorflow_cpu", "2.15.1", modules={
        "tensorflow/__init__.py": "import time\ntime.sleep(20)\n",
    })  # fmt: skip
    assert "importing tensorflow fails: it has not ended after 0.2 s" in refused(site)


def test_a_stack_that_cannot_be_imported_is_not_kept(site: Site) -> None:
    site.wheel = wheel(site.wheels, "tensorflow_cpu", "2.15.1", modules={
        "tensorflow/__init__.py": "raise ImportError('no AVX here')\n",
    })  # fmt: skip
    assert "mine does not work on this machine: importing tensorflow fails: ImportError: no AVX here" in refused(site)


def test_without_a_python_the_error_names_the_versions(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    text = refused(site, python="3.99")
    assert "mine needs Python 3.99: this machine has none, and uv cannot download one: " in text and "`stack:`" in text


def only_a_mirror_has_python(site: Site, patch: pytest.MonkeyPatch, **changes: object) -> str:
    """Hide the Pythons of this machine, and serve one with uv's variable for a list; return its release."""
    release, folder = platform.python_version(), f"lib/python{PYTHON}"
    values = b"# system configuration generated and used by the sysconfig module\nbuild_time_vars = {}\n"
    program = f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} "$@"\n'.encode()
    files = {f"bin/python{PYTHON}": program, f"{folder}/_sysconfigdata__linux_x86_64-linux-gnu.py": values}
    arch = {"family": platform.machine(), "variant": None}
    listed = entry(archive(site.folder / "python.tar.gz", files), release, arch=arch, **changes)
    patch.setenv(uv_pythons.FILE, str(listing(site.folder / "list.json", listed)))
    patch.setenv("UV_PYTHON_INSTALL_DIR", str(site.folder / "pythons"))
    patch.setenv("PATH", "/nowhere")
    return release


def test_a_python_that_this_machine_lacks_is_downloaded_as_for_hosts(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, said = only_a_mirror_has_python(site, monkeypatch), list[str]()
    environment = made(site, said)
    assert printed(environment, "import tensorflow; print(tensorflow.__version__)") == "2.15.1\n"
    assert f"downloading CPython {release}, because this machine has no Python {PYTHON}" in said
    assert [path.name for path in (site.folder / "pythons").glob(f"cpython-{release}-*")]


def test_a_python_without_a_hash_is_not_downloaded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    only_a_mirror_has_python(site, monkeypatch, sha256=None)
    assert "has no sha256, which uv would not miss" in refused(site)
    assert not (site.folder / "pythons").exists()


def test_a_cache_that_cannot_be_written_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.folder / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(site.folder / "file"))
    text = refused(site)
    assert text.startswith(f"{site.folder}/file/tfctl/run/stacks: cannot be written: Not a directory")
    assert "XDG_CACHE_HOME" in text


#: What uv 0.13 has printed, and what the user is told.
@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("error: Failed to write to the cache\n  cause: No space left on device (os error 28)\n", "no space left"),
        ("error: failed to create directory `/c/x`\n  Caused by: Read-only file system (os error 30)\n", "Read-only"),
        ("error: Request failed after 3 retries in 4.3s\n  cause: Failed to fetch: https://index/simple/six/\n"
         "  cause: dns error\n  cause: failed to lookup address information\n",
         "cannot be downloaded from https://index/simple/six/: failed to lookup address information"),
        ("  \u00d7 No solution found when resolving:\n  ╰─▶ Because six==1.17.0 has no wheels with a matching\n"
         "      platform tag, it cannot be used.\n", "has no wheels with a matching platform tag"),
        ("", "cannot be installed"),
    ],
)  # fmt: skip
def test_what_uv_prints_becomes_a_sentence(site: Site, output: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = site.folder / "uv"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'.'\n{output}.\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setattr("tfctl.provision.uv.program", lambda: str(program))
    with pytest.raises(PreflightFailed) as raised:
        installer.Installer(lambda: site.folder, print, None).run("venv", "x", what="the packages of mine")
    assert said in raised.value.message and "\n" not in raised.value.message
    assert raised.value.exit is Exit.PREFLIGHT


def test_progress_is_drawn_on_a_terminal_without_the_list_of_packages(site: Site) -> None:
    ours, its = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 65536):
                seen.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    Environments(lambda _: None, its).environment(site.stack(), "cpu")
    os.close(its)
    reader.join(10)
    os.close(ours)
    drawn = b"".join(seen)
    assert b"Resolved" in drawn and b"Installed" in drawn
    assert b"+ " not in drawn and b".part" not in drawn


def test_large_downloads_are_listed_where_nothing_is_drawn(site: Site) -> None:
    site.wheel = wheel(site.wheels, "tensorflow_cpu", "2.15.1", modules={
        "tensorflow/__init__.py": "__version__ = '2.15.1'\n", "tensorflow/data.txt": os.urandom(2_000_000).hex(),
    })  # fmt: skip
    said: list[str] = []
    made(site, said)
    assert said[1:-1] == ["downloading tensorflow-cpu (3.8 MiB)"]


def test_prune_frees_what_no_run_has_used_for_long(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    environment = made(site, [])
    old = time.time() - 40 * 86400
    os.utime(environment.path / cached.MARKER, (old, old))
    assert run(["prune", "--cache", "--dry-run"]) == 0
    captured = capsys.readouterr()
    assert f"stacks/{environment.path.name}" in captured.out and "downloads" not in captured.out
    assert "would be deleted" in captured.err and environment.path.exists()


def test_prune_keeps_what_a_run_uses(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    environments = Environments(lambda _: None, None)
    environment = environments.environment(site.stack(), "cpu")
    assert run(["prune", "--cache", "--all"]) == 0
    assert f"kept: stacks/{environment.path.name}, which a run is using" in capsys.readouterr().err
    assert environment.path.exists()
    environments.store.release()
    assert run(["prune", "--cache", "--all", "-o", "json"]) == 0
    assert f'"path": "{environment.path}"' in capsys.readouterr().out
    assert site.left() == [] and not (site.cache / "tfctl/run/downloads").exists()
    assert run(["prune", "--cache", "--all"]) == 0
    assert "there is nothing to delete" in capsys.readouterr().err


def test_prune_leaves_alone_what_is_being_installed_and_frees_what_an_interrupted_run_has_left(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    part = site.cache / "tfctl/run/stacks/.one.part"

    def make(path: Path) -> None:
        path.mkdir()
        assert run(["prune", "--cache", "--all"]) == 0
        assert "kept: stacks/.one.part, which a run is using\n" in capsys.readouterr().err

    store = cached.Store(lambda _: None)
    assert store.take("stacks", "one", "installs one", make).is_dir()
    store.release()
    (part / "bin").mkdir(parents=True)
    future = time.time() + 86400
    os.utime(part, (future, future))
    assert run(["prune", "--cache", "--all"]) == 0
    assert site.left() == []


def test_prune_deletes_nothing_that_tfctl_has_not_made(site: Site) -> None:
    elsewhere, stacks = site.folder / "elsewhere", site.cache / "tfctl/run/stacks"
    for folder in (elsewhere, stacks / "notes"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (elsewhere / cached.MARKER).touch()
    (stacks / "link").symlink_to(elsewhere)
    (stacks / ".two.part").symlink_to(elsewhere)
    (stacks.parent / "downloads").symlink_to(elsewhere)
    assert run(["prune", "--cache", "--all"]) == 0
    assert {path.name for path in elsewhere.iterdir()} == {"file", cached.MARKER}
    assert (stacks / "notes/file").exists() and (stacks / "link").is_symlink()


def test_prune_goes_on_after_what_cannot_be_deleted(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    store = cached.Store(lambda _: None)
    for name in ("one", "two"):
        store.take("stacks", name, "", lambda part: part.mkdir())
    store.release()
    lock = site.cache / "tfctl/run/stacks/.one.lock"
    lock.unlink()
    lock.mkdir()
    assert run(["prune", "--cache", "--all"]) == 8
    captured = capsys.readouterr()
    assert "stacks/two" in captured.out and "stacks/one" not in captured.out
    assert "stacks: cannot be written: Is a directory" in captured.err
    assert site.left() == ["one"]


@pytest.mark.usefixtures("site")
def test_what_is_deleted_while_a_run_looks_at_it_is_made_anew() -> None:
    """The first look of the second run is before the deletion, of which it waits for the end."""
    store, looks = cached.Store(lambda _: None), list[bool]()
    store.take("stacks", "one", "", lambda part: part.mkdir())
    store.release()

    def complete(path: Path) -> bool:
        looks.append(cached.is_complete(path))
        if len(looks) == 2:
            (each,) = cached.found()
            assert cached.delete(each)
        return looks[-1]

    assert cached.is_complete(store.take("stacks", "one", "", lambda part: part.mkdir(), complete))


def test_a_file_system_without_locks_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", without)
    assert "tfctl/run/stacks: cannot be written: No locks available" in refused(site)


@pytest.mark.parametrize(
    ("cache", "said"),
    [("a:b", "a:b/tfctl/run: PATH can have no directory with a :"), ("a" * 300, "File name too long")],
)
def test_a_cache_whose_path_does_not_do_is_named(
    site: Site, cache: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(site.folder / cache))
    assert said in refused(site)


def test_a_relative_path_is_no_cache(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(site.folder))
    assert made(site, []).path.is_relative_to(site.folder / ".cache/tfctl/run/stacks")


@pytest.mark.parametrize(
    "words", [["prune", "--all"], ["prune", "--cache", "digits"], ["prune", "--cache", "--keep", "2"]]
)
def test_options_of_the_cache_and_of_jobs_do_not_mix(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert "\n  → " in capsys.readouterr().err
