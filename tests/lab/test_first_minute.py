"""README's first commands in a minimal Debian 12, as an ordinary user with nothing cached: no root, no hosts.

The first run downloads TensorFlow; later ones have no network.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.lab import minimal
from tests.lab.minimal import Minimal
from tests.unit.doc_blocks import ROOT
from tfctl.model.strategies import STRATEGIES

USER = "ann"
#: How README says that a user without root gets uv.
GET_UV = "python3 -m venv ~/.uv && ~/.uv/bin/pip install uv"
#: README's commands, in a checkout and anywhere.
INSTALL = "uv tool install ."
FIRST = "tfctl init digits --strategy parameter_server && tfctl run digits/job.yaml"
#: What only root can do: Debian's own Python, which its minimal system lacks, and the user.
PREPARE = (
    "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null && "
    f"useradd --create-home {USER} && cp -a /root/tfctl /home/{USER}/tfctl && chown -R {USER}: /home/{USER}/tfctl"
)
#: uv reads no configuration of pip; the certificates of this network are those of the system.
SETTINGS = "export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"
#: Examples with roles in several stacks or with a launcher other than the default are tested on hosts.
WITHOUT_COMPILER = sorted(name for name, each in STRATEGIES.items() if not each.needs_horovod)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minimal]:
    """A system in which the user has uv."""
    with minimal.system(tmp_path_factory.mktemp("first-minute")) as found:
        for command, user in ((PREPARE, "root"), (GET_UV, USER)):
            done = found.run(command, timeout=300, user=user)
            assert done.returncode == 0, done.stdout[-3000:]
        yield found


@pytest.fixture(scope="module")
def installed(system: Minimal) -> Minimal:
    """The same after README's commands."""
    readme = (ROOT / "README.md").read_text()
    assert f"`{GET_UV}`" in readme and f"$ {INSTALL}\n$ {FIRST}\n" in readme
    began = time.monotonic()
    use_uv = INSTALL.replace("uv", "~/.uv/bin/uv", 1)
    done = system.run(f"{SETTINGS}; cd tfctl && {use_uv}", timeout=300, user=USER)
    assert done.returncode == 0, done.stdout[-3000:]
    done = system.run(FIRST, timeout=600, user=USER)
    print(f"from nothing to a trained model: {time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout[-5000:]
    assert "downloading tensorflow-cpu (" in done.stdout
    require_trained(done.stdout)
    return system


def require_trained(printed: str) -> None:
    """Check that two ps and two workers have trained a model for the chief."""
    accuracy = re.search(r"^chief/0  │ test accuracy (\d\.\d+)$", printed, re.MULTILINE)
    assert accuracy and float(accuracy[1]) > 0.85, printed[-3000:]
    states = re.findall(r"^(\w+/\d) +localhost +127\.0\.0\.1:\d+ +(\w+)", printed, re.MULTILINE)
    assert sorted(states) == [
        ("chief/0", "succeeded"), *((f"{role}/{index}", "stopped") for role in ("ps", "worker") for index in (0, 1))
    ]  # fmt: skip


def test_a_later_run_needs_no_network(installed: Minimal) -> None:
    began = time.monotonic()
    done = installed.run("tfctl run digits/job.yaml", timeout=300, user=USER, network=False)
    print(f"the second time, without a network: {time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "download" not in done.stdout and "install" not in done.stdout
    require_trained(done.stdout)


@pytest.mark.parametrize("strategy", [name for name in WITHOUT_COMPILER if name != "parameter_server"])
def test_each_strategy_can_be_tried_without_hosts(strategy: str, installed: Minimal) -> None:
    command = f"tfctl init {strategy} -s {strategy} && tfctl run {strategy}/job.yaml"
    done = installed.run(command, timeout=300, user=USER, network=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"test accuracy \d\.\d+", done.stdout), done.stdout[-3000:]
    assert done.stdout.splitlines()[-1].endswith(f"; on your own machines: tfctl start {strategy}/job.yaml")


def test_horovod_is_refused_without_a_compiler(installed: Minimal) -> None:
    done = installed.run("tfctl init ranks -s horovod && tfctl run ranks/job.yaml", timeout=120, user=USER)
    assert done.returncode == 8
    assert "Horovod has to be built for tf2.15, and this machine has no gcc, g++ or make" in done.stdout
    assert "sudo apt-get install gcc g++ make" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_horovod_is_built_where_there_is_a_compiler_and_runs_later_without_a_network(installed: Minimal) -> None:
    done = installed.run("apt-get install -y -qq --no-install-recommends gcc g++ make >/dev/null", timeout=300)
    assert done.returncode == 0, done.stdout
    done = installed.run("tfctl init built -s horovod && tfctl run built/job.yaml", timeout=1200, user=USER)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "building Horovod 0.28.1 for tf2.15" in done.stdout and "test accuracy" in done.stdout
    done = installed.run("tfctl run built/job.yaml", timeout=300, user=USER, network=False)
    assert done.returncode == 0, done.stdout[-5000:]


def test_a_full_disk_is_explained_and_leaves_nothing_behind(installed: Minimal) -> None:
    small = "mkdir -p /small && mount -t tmpfs -o size=60m,mode=777 tmpfs /small"
    assert installed.run(small, timeout=20).returncode == 0
    done = installed.run("XDG_CACHE_HOME=/small tfctl run digits/job.yaml", timeout=300, user=USER)
    assert done.returncode == 8
    assert "/small/tfctl/run: no space left" in done.stdout and "tfctl prune --cache --all" in done.stdout
    assert installed.run("ls /small/tfctl/run/stacks", timeout=20).stdout == ""


def test_a_read_only_cache_is_explained(installed: Minimal) -> None:
    read_only = "mkdir -p /fixed && mount -t tmpfs -o ro tmpfs /fixed"
    assert installed.run(read_only, timeout=20).returncode == 0
    done = installed.run("XDG_CACHE_HOME=/fixed tfctl run digits/job.yaml", timeout=60, user=USER)
    assert done.returncode == 8
    assert "/fixed/tfctl/run/stacks: cannot be written: Read-only file system" in done.stdout


def test_the_demo_of_an_ordinary_user_runs_on_this_machine(installed: Minimal) -> None:
    done = installed.run(f"{SETTINGS}; tfctl/scripts/demo", timeout=500, user=USER)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "this runs all tasks on this machine" in done.stdout
    require_trained(done.stdout)
