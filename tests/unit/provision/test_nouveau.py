"""The role nvidia_driver removes nouveau from every initramfs, also after a run that was interrupted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.unit.provision.role_play import ROLES, play

ROLE = ROLES / "nvidia_driver"


class Host:
    """A directory with a kernel and its initramfs, and the tasks of the role for nouveau on these files."""

    def __init__(self, folder: Path, image: str) -> None:
        self.folder, self.image, self.calls = folder, folder / "boot" / image, folder / "calls"
        self.image.parent.mkdir()
        (folder / "modules/6.1.0-9").mkdir(parents=True)
        # No command rebuilds this one: its kernel is not installed.
        self.make(folder / "boot/initrd.img-5.10.0-8", age_s=1000)
        self.make(self.image, age_s=1000)
        self.calls.write_text("")
        text = (ROLE / "tasks/configure.yml").read_text()
        for path, place in (
            ("/etc/modprobe.d", folder),
            ("/boot", folder / "boot"),
            ("/lib/modules", folder / "modules"),
        ):
            text = text.replace(f"{path}/", f"{place}/")
        self.tasks = [
            task for task in yaml.safe_load(text) if "nvidia_driver_blacklist_nouveau" in str(task.get("when"))
        ]
        copy = self.tasks[0]["ansible.builtin.copy"]
        copy["src"] = str(ROLE / "files" / copy["src"])
        for own in ("owner", "group"):  # tests need no root
            copy.pop(own)

    def make(self, image: Path, age_s: int) -> None:
        image.touch()
        then = image.stat().st_mtime - age_s
        os.utime(image, (then, then))

    def run(self, *words: str) -> int:
        """Run the tasks; return how often the initramfs has been rebuilt in all runs."""
        command = ["sh", "-c", f"sleep 0.1; touch {self.image}; echo rebuilt >>{self.calls}"]
        tasks = [{**task, "vars": {"nvidia_driver_initramfs_command": command}} for task in self.tasks]
        play(self.folder, "nvidia_driver", tasks, *words)
        return self.calls.read_text().count("rebuilt")


@pytest.mark.extended
@pytest.mark.parametrize("image", ["initrd.img-6.1.0-9", "initramfs-6.1.0-9.img"])
def test_initramfs_is_rebuilt_once_and_again_after_an_interrupted_run(tmp_path: Path, image: str) -> None:
    host = Host(tmp_path, image)
    assert host.run("--check") == 0
    assert [host.run(), host.run(), host.run("--check")] == [1, 1, 1]
    # As a run leaves it that was interrupted after it had written the file.
    host.make(host.image, age_s=1000)
    assert [host.run("--check"), host.run(), host.run()] == [1, 2, 2]
