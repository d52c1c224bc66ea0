"""The tutorial, docs/tutorial.md, on four bare nodes that share no directory.

The test follows the page from its first block to its last: it runs the lines that begin with "$ " and writes the files
as the page shows them. Only the machines, their user and the ssh key are those of the lab. The page has two machines;
what it does with the second, the test also does with the third and the fourth.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.labs import TFCTL, Lab, sharing_nothing
from tests.unit.doc_blocks import ROOT, blocks

PAGE = ROOT / "docs/tutorial.md"
#: The addresses of the machines: two on the page, and two more.
ADDRESSES = {f"node{number}": f"192.0.2.1{number}" for number in range(1, 5)}
SECOND = "node2 ansible_host=192.0.2.12\n"
#: The files that the blocks of the page without commands show, in the order of the page.
FILES = ("hosts.ini", "train.py", "job.yaml", "train.py", "hosts.ini", "train_all.py", "all.yaml")
TRAIN = "tfctl start spirals/job.yaml --wait --follow"
TRAIN_ALL = "tfctl start spirals/all.yaml --wait --follow"
#: Of one command. Horovod is built if the cache of this machine does not contain it.
LIMIT_S = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * LIMIT_S)]


@pytest.fixture
def four(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with sharing_nothing(f"{run_name}-tutorial", tmp_path_factory.mktemp("tutorial"), len(ADDRESSES)) as found:
        yield found


def test_tutorial_trains_its_scripts_on_machines_that_share_no_directory(four: Lab, tmp_path: Path) -> None:
    reader, began = Reader(four, tmp_path), time.monotonic()
    reader.prepare_ssh()
    names, printed = iter(FILES), dict[str, str]()
    for block in blocks(PAGE):
        if block.language != "console":
            reader.write(next(names), block.text)
            continue
        for line in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
            printed[line] = reader.run(line)
            if line == TRAIN:
                minutes = (time.monotonic() - began) / 60
                print(f"docs/tutorial.md, up to the first trained model: {minutes:.1f} min")
                assert minutes < 15
    assert next(names, None) is None

    assert "the hosts share no directory of tfctl_output_roots" in printed["tfctl preflight spirals/hosts.ini"]
    assert accuracy(printed[TRAIN]) > 0.9
    assert (tmp_path / "spirals-results/output/model.keras").stat().st_size
    assert "test accuracy" in (tmp_path / "spirals-results/attempt-1/worker-0.log").read_text()
    # The page changes this script after its first start.
    again = reader.run(TRAIN)
    assert "spirals: attempt 2" in again and accuracy(again) > 0.9

    accuracy(printed[TRAIN_ALL])
    assert all(f"worker/{rank} │ rank {rank} of 4: done" in printed[TRAIN_ALL] for rank in range(4))
    reader.run("tfctl pull spirals-all -i spirals/hosts.ini")
    assert (tmp_path / "spirals-all-results/output/node1/model.keras").stat().st_size


def accuracy(printed: str) -> float:
    """Return the accuracy that worker 0 has printed."""
    found = re.search(r"worker/0 │ test accuracy (\d\.\d+)", printed)
    assert found, printed[-2000:]
    return float(found[1])


@dataclass(frozen=True)
class Reader:
    """A reader of the page, with the machines of ``lab``. ``folder``: the current and the home directory."""

    lab: Lab
    folder: Path

    def prepare_ssh(self) -> None:
        """Let ssh use the key of the lab and accept the keys of new hosts, as the page asks.

        OpenSSH does not look at HOME, so a program of the same name passes the settings to it.
        """
        login, real = self.lab.hosts()["node1"], shutil.which("ssh")
        key, keys = Path(login["ansible_ssh_private_key_file"]), self.folder / ".ssh"
        keys.mkdir(mode=0o700)
        shutil.copy(key, keys / "id_ed25519")
        shutil.copy(key.with_suffix(".pub"), keys / "id_ed25519.pub")
        (keys / "config").write_text(
            f"IdentityFile {keys}/id_ed25519\nUserKnownHostsFile {keys}/known_hosts\n"
            "StrictHostKeyChecking accept-new\nBatchMode yes\n"
        )
        program = self.folder / "ssh-programs/ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {real} -F {keys}/config "$@"\n')
        program.chmod(0o755)

    def write(self, name: str, text: str) -> None:
        """Do to a file in spirals/ what the page asks for above a block with this text."""
        file = self.folder / "spirals" / name
        if name == "job.yaml":
            return  # the page shows the file that `tfctl init` has written; tests/unit/test_docs.py compares them
        if name == "hosts.ini" and "[gpu]" not in text:
            text = file.read_text() + text
        elif name == "hosts.ini":
            text = self._with_login(text)
        elif text.startswith("with "):
            assert file.read_text().count("\nmodel = build_model()\n") == 1
            text = file.read_text().replace("\nmodel = build_model()\n", f"\n{text}")
        file.write_text(text)

    def _with_login(self, text: str) -> str:
        """Return the inventory of the page with all machines, and with the login to them."""
        more = [f"{node} ansible_host={address}\n" for node, address in ADDRESSES.items() if address not in text]
        assert SECOND in text and len(more) == 2
        return self._on_lab(text.replace(SECOND, "".join([SECOND, *more]))) + (
            f"ansible_ssh_private_key_file={self.folder}/.ssh/id_ed25519\n"
            f"ansible_ssh_common_args='-o UserKnownHostsFile={self.folder}/.ssh/known_hosts'\n"
        )

    def _on_lab(self, text: str) -> str:
        """Return the text with the addresses and the user of the lab."""
        user = self.lab.hosts()["node1"]["ansible_user"]
        text = self.lab.with_addresses(text, ADDRESSES)
        return text.replace("ubuntu@", f"{user}@").replace("ansible_user=ubuntu", f"ansible_user={user}")

    def run(self, line: str) -> str:
        """Run a command of the page in a shell; return its stdout and stderr. It must succeed."""
        others = [*ADDRESSES.values()][2:] if ADDRESSES["node2"] in line else []
        return "".join(self._run(each) for each in (line, *(line.replace(ADDRESSES["node2"], it) for it in others)))

    def _run(self, line: str) -> str:
        path = f"{self.folder}/programs:{os.environ['PATH']}"
        settings = {"UV_TOOL_DIR": f"{self.folder}/tools", "UV_TOOL_BIN_DIR": f"{self.folder}/programs", "PATH": path}
        if line.startswith("uv "):
            settings["PATH"] = f"{TFCTL.parent}:{path}"  # the environment of the tests contains uv
        elif line.startswith("ssh"):
            settings |= {"HOME": str(self.folder), "PATH": f"{self.folder}/ssh-programs:{path}"}
        done = subprocess.run(
            ["bash", "-c", self._on_lab(line)], cwd=ROOT if line.startswith("uv ") else self.folder,
            env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout}"
        return done.stdout
