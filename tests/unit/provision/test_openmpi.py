"""The role openmpi: the links that it creates in an environment and removes from it, and what a build leaves."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.provision.role_play import facts, play, tasks_of, trial

BUILT = "/opt/tfctl/openmpi/4.1.8-0123456789ab/bin"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with an Open MPI of its own, and one link of the role."""
    programs = tmp_path / "environment/bin"
    programs.mkdir(parents=True)
    (programs / "prterun").touch()
    (programs / "mpirun").symlink_to("prterun")
    (programs / "mpicc").symlink_to(f"{BUILT}/mpicc")
    return tmp_path / "environment"


@pytest.mark.extended
def test_role_removes_only_links_to_an_openmpi_that_it_has_built(tmp_path: Path, environment: Path) -> None:
    given = facts(openmpi_method="distribution", openmpi_environment=str(environment))
    tasks = [given, *tasks_of("openmpi", "links.yml")]
    play(tmp_path, "openmpi", tasks, "--check")
    assert (environment / "bin/mpicc").is_symlink()
    play(tmp_path, "openmpi", tasks)
    assert sorted(path.name for path in (environment / "bin").iterdir()) == ["mpirun", "prterun"]
    play(tmp_path, "openmpi", [facts(openmpi_method="none", openmpi_environment=f"{tmp_path}/none"), *tasks[1:]])


@pytest.mark.extended
def test_role_does_not_replace_a_program_of_the_environment_by_a_link(tmp_path: Path, environment: Path) -> None:
    (environment / "bin/mpirun").unlink()
    (environment / "bin/mpirun").write_text("mine")
    built = tmp_path / "built"
    (built / "bin").mkdir(parents=True)
    for name in ("mpirun", "mpicc"):
        (built / "bin" / name).touch()
    given = {"openmpi_environment": str(environment), "openmpi_prefix": str(built), "openmpi_version": "4.1.8"}
    task = tasks_of("openmpi", "links.yml")[0]
    links = trial(task, "refusing to convert", **given, openmpi_method="source", openmpi_programs=["mpirun", "mpicc"])
    play(tmp_path, "openmpi", [*links])
    assert (environment / "bin/mpirun").read_text() == "mine"
    assert (environment / "bin/mpicc").readlink() == built / "bin/mpicc"


@pytest.mark.extended
def test_archive_of_a_build_is_deleted_from_its_host_also_by_a_later_run(tmp_path: Path) -> None:
    """The run that has built it may have been interrupted when the control machine had the archive."""
    (tmp_path / "mpirun").touch()
    built, left, place = tmp_path / "built.tar.gz", tmp_path / "openmpi-key.tar.gz", tmp_path / "openmpi"
    with tarfile.open(built, "w:gz") as file:
        for name, mode in (("bin/mpirun", 0o6777), ("lib/libmpi.so", 0o666)):  # another host has built it
            (tmp_path / "mpirun").chmod(mode)
            file.add(tmp_path / "mpirun", name)
    left.touch()
    tasks = installation()
    given = facts(openmpi_built=str(built), openmpi_result=str(left), openmpi_path=str(place))
    play(tmp_path, "openmpi", [given, *tasks])
    assert (place / "bin/mpirun").exists() and not left.exists()
    modes = [(place / name).stat().st_mode & 0o7777 for name in ("bin/mpirun", "lib/libmpi.so")]
    assert modes == [0o755, 0o644]


@pytest.mark.extended
def test_role_unpacks_a_build_again_in_which_only_a_link_is_missing(tmp_path: Path) -> None:
    (tmp_path / "orterun").touch()
    (tmp_path / "tfctl.sha256").touch()
    (tmp_path / "mpirun").symlink_to("orterun")
    built, place = tmp_path / "built.tar.gz", tmp_path / "openmpi"
    with tarfile.open(built, "w:gz") as file:
        file.add(tmp_path / "tfctl.sha256", "tfctl.sha256")
        for name in ("orterun", "mpirun"):
            file.add(tmp_path / name, f"bin/{name}")
    given = facts(openmpi_built=str(built), openmpi_result=str(tmp_path / "none"), openmpi_path=str(place))
    play(tmp_path, "openmpi", [given, *installation()])
    (place / "bin/mpirun").unlink()
    play(tmp_path, "openmpi", [given, *installation()])
    assert (place / "bin/mpirun").readlink() == Path("orterun")
    assert (place / "tfctl.sha256").is_file()


def installation() -> list[dict[str, Any]]:
    """Return the tasks that install a build, without owner and group: tests need no root."""
    tasks = tasks_of("openmpi", "install.yml")
    for task in tasks:
        for kind in (name for name in task if name.startswith("ansible.builtin.")):
            for own in ("owner", "group"):
                task[kind].pop(own, None)
    return tasks
