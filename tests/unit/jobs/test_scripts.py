"""What a job's commands run is checked before it starts: whether it can run, and what works against tfctl."""

from __future__ import annotations

import json
import shlex
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

from tests.unit.model.four_hosts import INVENTORY
from tfctl.jobs import check, code, programs
from tfctl.jobs.check import Checked
from tfctl.model.layout import lay_out
from tfctl.model.load import load

CLUSTERED = ("custom", "estimator", "multi_worker_mirrored", "parameter_server", "tf1_ps")
ROLES = {
    "custom": "{worker: 2}",
    "estimator": "{chief: 1, ps: 1, worker: 1}",
    "horovod": "{worker: 2}",
    "mirrored": "{worker: 1}",
    "multi_worker_mirrored": "{worker: 2}",
    "parameter_server": "{chief: 1, ps: 1, worker: 1}",
    "tf1_ps": "{ps: 1, worker: 1}",
}


def checked(
    folder: Path, command: str | list[str], strategy: str = "multi_worker_mirrored", lines: str = "", roles: str = ""
) -> Checked:
    """Check a job with this command, in a folder that has its code. A string is split as a shell would."""
    words = shlex.split(command) if isinstance(command, str) else command
    text = f"name: j\nstrategy: {strategy}\ncommand: {json.dumps(words)}\nroles: {roles or ROLES[strategy]}\n{lines}\n"
    (folder / "job.yaml").write_text(text)
    layout = lay_out(load(folder / "job.yaml"), INVENTORY, "job.yaml")
    return check.check(layout, code.of_job(layout))


def warnings(
    folder: Path, command: str | list[str], strategy: str = "multi_worker_mirrored", lines: str = "", roles: str = ""
) -> list[str]:
    found = checked(folder, command, strategy, lines, roles)
    assert found.errors == ()
    return [*found.warnings]


def errors(folder: Path, command: str | list[str], strategy: str = "custom") -> list[str]:
    """Return the errors, each once, without the task that they name."""
    found = [f"{error.message} → {error.remedy}" for error in checked(folder, command, strategy).errors]
    return [*dict.fromkeys(each.partition(": ")[2] for each in found)]


def python(folder: Path, text: str, name: str = "train.py") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(textwrap.dedent(text))


#: Each line changes the variable NAME.
CHANGES = """\
import os, subprocess
from os import environ as e
os.environ["NAME"] = "{}"
os.environ.pop('NAME', None)
os.environ.update({"A": "1", "NAME": "{}"})
os.environ.update(NAME="{}")
del os.environ["NAME"]
os.putenv("NAME", "")
if True:
    os.environ[
        "NAME"
    ] = "{}"
os.environ.setdefault("NAME", "{}")
os.environ |= {"NAME": "{}"}
os.environ |= dict(NAME="{}")
subprocess.run(["a"], env={**os.environ, "NAME": "{}"})
subprocess.Popen(["a"], env=dict(os.environ, NAME="{}"))
subprocess.check_call(["a"], env=os.environ | {"NAME": "{}"})
name = "NAME"
os.environ[name] = "{}"
e["NAME"] = "{}"
variables = os.environ
variables["NAME"] = "{}"
os.environ.update([("NAME", "{}")])
os.environ.__setitem__("NAME", "{}")
for each in ("A", "NAME"):
    os.environ.pop(each, None)
os.execve("/a", ["a"], {**os.environ, "NAME": "{}"})
subprocess.run(["env", "NAME={}", "python", "other.py"])
os.environ["NA" + "ME"] = "{}"
os.system("NAME='{}' python other.py")
subprocess.run(f"export NAME={e}; python other.py", shell=True)
with_it = os.environ.copy()
with_it["NAME"] = "{}"
subprocess.run(["a"], env=with_it)
"""
CHANGED = (3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16, 17, 18, 20, 21, 23, 24, 25, 27, 28, 29, 30, 31, 32, 34)
READS = """\
import json, os, subprocess
config = json.loads(os.environ["NAME"])
config = os.environ.get("NAME", "")
config["NAME"] = 1  # os.environ["NAME"] = 1
other = {"NAME": "1"}
subprocess.run(["a"], env={"NAME": os.environ["NAME"], "A": "1"})
subprocess.run(["a"], env={"NAME": os.environ.get("NAME", ""), **other}, check=True) if 0 else None
os.environ["OTHER"] = "NAME"
os.environ.update({"OTHER": "NAME"})
"invalid \\\\e"
""".replace(", **other}", "}")


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("TF_CONFIG", "multi_worker_mirrored"), ("CUDA_VISIBLE_DEVICES", "custom"), ("HOROVOD_RANK", "horovod")],
)
def test_every_line_of_python_that_changes_a_placing_variable_is_named(
    name: str, strategy: str, tmp_path: Path
) -> None:
    python(tmp_path, CHANGES.replace('"NA" + "ME"', f'"{name[:2]}" + "{name[2:]}"').replace("NAME", name))
    found = warnings(tmp_path, "python train.py", strategy, roles="{worker: {per_host: 1, gpus: 1}}")
    assert [each.partition(" changes ")[0] for each in found] == [f"train.py, line {line}" for line in CHANGED]
    assert all(f" changes {name}, which tfctl sets for each task: remove that" in each for each in found)


#: Each changes NAME only if it is not set.
DEFAULTS = [
    'if "NAME" not in os.environ:\n    os.environ["NAME"] = "{}"',
    'if local and "NAME" not in os.environ:\n    os.environ["NAME"] = "{}"',
    'if not os.environ.get("NAME"):\n    os.environ["NAME"] = "{}"',
    'if os.getenv("NAME") is None:\n    os.environ["NAME"] = "{}"',
    'if (found := os.environ.get("NAME")):\n    pass\nelse:\n    os.environ["NAME"] = "{}"',
    'found = json.loads(os.environ.get("NAME", "{}"))\nif found:\n    pass\nelif hosts:\n    os.environ["NAME"] = "{}"',
    'try:\n    found = os.environ["NAME"]\nexcept KeyError:\n    os.environ["NAME"] = "{}"',
    'os.environ["NAME"] = os.environ.get("NAME") or "{}"',
    'os.environ["NAME"] = os.environ["NAME"] if "NAME" in os.environ else "{}"',
    'def f():\n    if "NAME" in os.environ:\n        return\n    os.environ["NAME"] = "{}"',
]


@pytest.mark.parametrize("text", DEFAULTS)
def test_a_default_for_a_variable_that_tfctl_sets_is_not_named(text: str, tmp_path: Path) -> None:
    python(tmp_path, f"import json, os\n{text}\n".replace("NAME", "TF_CONFIG"))
    assert warnings(tmp_path, "python train.py") == []
    [found] = warnings(tmp_path, "python train.py", "mirrored")
    assert found.endswith("changes TF_CONFIG, which tasks of mirrored must not have: remove that line")
    python(tmp_path, f"import json, os\n{text}\n".replace("NAME", "CUDA_VISIBLE_DEVICES"))
    assert warnings(tmp_path, "python train.py", roles="{worker: {per_host: 1, gpus: 1}}") == []


@pytest.mark.parametrize(
    "text",
    [
        'if "TF_CONFIG" in os.environ:\n    del os.environ["TF_CONFIG"]',
        'if not os.environ.get("OTHER"):\n    os.environ["TF_CONFIG"] = "{}"',
        'if os.environ.get("TF_CONFIG") is not None:\n    os.environ["TF_CONFIG"] = "{}"',
        'os.environ["TF_CONFIG"] = os.environ.get("OTHER") or "{}"',
    ],
)
def test_a_change_behind_another_condition_is_named(text: str, tmp_path: Path) -> None:
    python(tmp_path, f"import os\n{text}\n")
    [found] = warnings(tmp_path, "python train.py")
    assert "changes TF_CONFIG" in found


def test_an_environment_that_is_not_that_of_the_process_is_ignored(tmp_path: Path) -> None:
    python(tmp_path, 'def app(request):\n    request.environ["TF_CONFIG"] = 1\n')
    assert warnings(tmp_path, "python train.py") == []
    python(tmp_path, 'import os as system\nsystem.environ["TF_CONFIG"] = "1"\n')
    assert len(warnings(tmp_path, "python train.py")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import os\na = 'x'\na = 'y'\nos.environ[" + "+".join(["a"] * 60) + "] = 1\n",
        "import os\n" + "".join(f"e{n} = {{}}\ne{n}['A'] = '1'\nf(env=e{n})\n" for n in range(2000)),
        "import os\nif 0: pass\n" + "elif 1: pass\n" * 1500,
        "import os\nos.environ['TF_CONFIG'] = " + "+".join(["'a'"] * 3000),
    ],
    ids=["texts", "environments", "branches", "parts"],
)
def test_a_hostile_file_is_read_quickly(text: str, tmp_path: Path) -> None:
    python(tmp_path, text)
    began = time.process_time()
    assert warnings(tmp_path, "python train.py") == []
    assert time.process_time() - began < 3


def test_reading_a_variable_and_broken_files_are_ignored(tmp_path: Path) -> None:
    python(tmp_path, READS.replace("NAME", "TF_CONFIG") + "import old, nul\n")
    python(tmp_path, 'print "TF_CONFIG"; os.environ["TF_CONFIG"] = 1\n', "old.py")
    (tmp_path / "nul.py").write_bytes(b"TF_CONFIG \0")
    python(tmp_path, 'os.environ["TF_CONFIG"] = 1\n', "notes.txt")
    assert warnings(tmp_path, "python train.py") == []


SETS = 'import os\nos.environ["TF_CONFIG"] = "{}"\n'


@pytest.mark.parametrize(
    ("command", "files", "named"),
    [
        ("python train.py", {"train.py": "import a", "a.py": SETS}, "a.py"),
        ("python train.py", {"train.py": "from lib import a", "lib/a.py": SETS}, "lib/a.py"),
        ("python train.py", {"train.py": "import lib.a.b", "lib/a/b.py": SETS}, "lib/a/b.py"),
        ("python train.py", {"train.py": "import lib", "lib/__init__.py": SETS}, "lib/__init__.py"),
        ("python train.py", {"train.py": "def f():\n  import a", "a.py": SETS}, "a.py"),
        ("python src/train.py", {"src/train.py": "import a", "src/a.py": SETS}, "src/a.py"),
        ("python -m lib.train", {"lib/train.py": "from . import a", "lib/a.py": SETS}, "lib/a.py"),
        ("python -m lib.train", {"lib/train.py": "from .a import x", "lib/a.py": SETS}, "lib/a.py"),
        ("python -m lib.sub.train", {"lib/sub/train.py": "from ..a import x", "lib/a.py": SETS}, "lib/a.py"),
        ("python -m lib", {"lib/__main__.py": SETS}, "lib/__main__.py"),
        ("python lib", {"lib/__main__.py": "import a", "lib/a.py": SETS}, "lib/a.py"),
        ("python -c 'import a'", {"a.py": SETS}, "a.py"),
        ("./train.py", {"train.py": SETS}, "train.py"),
        ("./train", {"train": f"#!/usr/bin/env python3\n{SETS}"}, "train"),
        ("nice -n 5 python -u train.py", {"train.py": SETS}, "train.py"),
        ("sh -c 'exec python train.py'", {"train.py": SETS}, "train.py"),
        ("sh run.sh", {"run.sh": "python train.py", "train.py": SETS}, "train.py"),
        ("sh sub/run.sh", {"sub/run.sh": 'cd "$(dirname "$0")"\npython a.py', "sub/a.py": SETS}, "sub/a.py"),
        ("env PYTHONPATH=src python train.py", {"train.py": "import a", "src/a.py": SETS}, "src/a.py"),
        ("env PYTHONPATH=src python -m lib.a", {"src/lib/a.py": SETS}, "src/lib/a.py"),
        ("env PYTHONPATH=src python -m lib", {"src/lib/__main__.py": SETS}, "src/lib/__main__.py"),
    ],
)
def test_the_scripts_of_a_command_and_the_modules_that_they_import_are_read(
    command: str, files: dict[str, str], named: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        python(tmp_path, text, name)
        (tmp_path / name).chmod(0o755)
    [found] = warnings(tmp_path, command)
    assert found.startswith(f"{named}, line ") and "changes TF_CONFIG" in found


def test_a_module_that_a_script_imports_and_that_is_not_sent_is_named(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    python(tmp_path, "import lib.a, b\n")
    python(tmp_path, "", "lib/a.py")
    python(tmp_path, "", "b.py")
    (tmp_path / ".gitignore").write_text("lib\n")
    assert warnings(tmp_path, "python train.py") == [
        "worker: lib/a.py is not sent to the hosts, and its command uses it: git ignores it; list it in the job file, "
        "code: {include: [lib/a.py]}, or let git track it"
    ]


def test_code_that_no_command_runs_is_not_read(tmp_path: Path) -> None:
    python(tmp_path, "import os, tensorflow.a, missing\n# import other\n")
    python(tmp_path, SETS, "other.py")
    python(tmp_path, SETS, "tests/test_train.py")
    python(tmp_path, "import other", "lib/unused.py")
    assert warnings(tmp_path, "python train.py other.py") == []


@pytest.mark.parametrize(
    "text",
    [
        "export TF_CONFIG='{\"cluster\":\n {}}'",
        "TF_CONFIG={} exec python train.py",
        "unset TF_CONFIG",
        "read -r TF_CONFIG < config.json",
        "set -e; export A=1 TF_CONFIG={}",
        "env -u TF_CONFIG python train.py",
        "env TF_CONFIG={} python train.py",
        "if true; then TF_CONFIG={}; fi",
        "bash -c 'TF_CONFIG={} exec python train.py'",
        "declare -x TF_CONFIG={}",
        "eval 'export TF_CONFIG={}'",
        "true && TF_CONFIG={} python train.py | tee log",
    ],
)
def test_a_shell_that_changes_a_placing_variable_is_named(text: str, tmp_path: Path) -> None:
    python(tmp_path, "")
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n# TF_CONFIG=0\n{text}\n")
    (tmp_path / "run.sh").chmod(0o755)
    sentence = "changes TF_CONFIG, which tfctl sets for each task: remove that line"
    for command in ("./run.sh", "bash run.sh", "nohup sh -e run.sh", "sh -c './run.sh --now'", "sh -c '. ./run.sh'"):
        found = [each for each in warnings(tmp_path, command) if "without `exec`" not in each]
        assert found == [f"run.sh, line 3 {sentence}"]
    found = [each for each in warnings(tmp_path, ["bash", "-c", text]) if "without `exec`" not in each]
    assert found == [f"worker: the command {sentence}"]


@pytest.mark.parametrize(
    "text",
    [
        "echo TF_CONFIG={}",
        'export TF_CONFIG="${TF_CONFIG:-{}}"',
        "export TF_CONFIG",
        "# export TF_CONFIG={}",
        "cat <<E\nTF_CONFIG={}\nE",
        "python train.py --set TF_CONFIG={}",
        "XTF_CONFIG=1 MY=TF_CONFIG exec python train.py",
    ],
)
def test_a_shell_that_leaves_the_variable_alone_is_not_named(text: str, tmp_path: Path) -> None:
    python(tmp_path, "")
    (tmp_path / "run.sh").write_text(text)
    assert warnings(tmp_path, "sh run.sh") == []


def test_a_command_that_changes_a_placing_variable_is_named(tmp_path: Path) -> None:
    python(tmp_path, "")
    for command in ("env TF_CONFIG={} python train.py", "env -u TF_CONFIG python train.py"):
        [found] = warnings(tmp_path, command)
        assert found == "worker: the command changes TF_CONFIG, which tfctl sets for each task: remove that line"
    [found] = warnings(tmp_path, "env -i python train.py")
    assert found == "worker: the command removes the variables that tfctl sets for each task: remove `-i` of env"


@pytest.mark.parametrize(
    ("gpus", "value", "warned"),
    [
        ("1", "0", True),
        ("1", "-1", True),
        ("1", "", True),
        ("0", "-1", False),
        ("0", "NoDevFiles", False),
        ("0", "", False),
        ("0", "2", True),
    ],
)
def test_devices_matter_unless_a_role_without_gpus_hides_them(
    gpus: str, value: str, warned: bool, tmp_path: Path
) -> None:
    python(tmp_path, f'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "{value}"\n')
    (tmp_path / "run.sh").write_text(f"export CUDA_VISIBLE_DEVICES={value}\nexec python train.py")
    roles = f"{{worker: {{replicas: 2, gpus: {gpus}}}}}"
    sentence = "changes CUDA_VISIBLE_DEVICES, which tfctl sets for each task: remove that, and set `gpus` of the role"
    in_python = [f"train.py, line 2 {sentence}"] * warned
    assert warnings(tmp_path, "python train.py", roles=roles) == in_python
    assert warnings(tmp_path, "sh run.sh", roles=roles) == [f"run.sh, line 1 {sentence}"] * warned + in_python


@pytest.mark.parametrize("name", ["HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_TIMELINE", "TF_GRPC_DEFAULT_OPTIONS"])
def test_variables_that_tune_may_be_changed(name: str, tmp_path: Path) -> None:
    python(tmp_path, CHANGES.replace("NAME", name))
    assert warnings(tmp_path, "python train.py", "horovod") == []


LAUNCHERS = [
    "horovodrun -np 4 -H node1:2,node2:2 python train.py --epochs 3",
    "mpirun -np 4 -bind-to none python train.py --epochs 3",
    "/opt/mpi/bin/mpiexec python train.py --epochs 3",
    "srun -n 4 python train.py --epochs 3",
    "torchrun --nproc_per_node 4 train.py --epochs 3",
    "nice env A=1 mpirun python train.py --epochs 3",
    "python -m horovod.runner.launch -np 4 python train.py --epochs 3",
    "sh -c 'exec mpirun -np 2 python train.py --epochs 3'",
    "sh -c '. ./x && cd /a && exec mpirun -np 2 python train.py --epochs 3'",
]


@pytest.mark.parametrize("command", LAUNCHERS)
def test_a_program_that_starts_ranks_is_refused_where_tfctl_starts_them(command: str, tmp_path: Path) -> None:
    python(tmp_path, "")
    [error] = errors(tmp_path, command, "horovod")
    assert "in the command starts ranks, and tfctl starts them itself → write `command: python train.py --" in error
    for strategy in set(CLUSTERED) - {"custom"}:
        found = checked(tmp_path, command, strategy)
        assert found.errors == ()
        assert {each.partition(":")[0] for each in found.warnings} == {
            role for role in ("chief", "ps", "worker") if role in ROLES[strategy]
        }
        assert all(each.endswith("itself: write `command: python train.py --epochs 3`") for each in found.warnings)
    assert warnings(tmp_path, command, "custom") == warnings(tmp_path, command, "mirrored") == []


def test_a_script_that_starts_ranks_is_named(tmp_path: Path) -> None:
    python(tmp_path, "")
    (tmp_path / "run.sh").write_text("set -e\nif true; then\n  mpirun -np 2 python train.py\nfi\n")
    for strategy in ("horovod", "multi_worker_mirrored"):
        [found] = warnings(tmp_path, "sh run.sh", strategy)
        assert found.startswith("run.sh, line 3: `mpirun` starts processes, and tfctl starts every task of the job")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("source venv/bin/activate", "`source` is a builtin of shells, and no shell runs the command → remove it: the"),
        (". venv/bin/activate", "`.` is a builtin of shells, and no shell runs the command → remove it"),
        ("cd src", "`cd` is a builtin of shells, and no shell runs the command → name the directory in `code`"),
        ("nice cd src", "`cd` is a builtin of shells"),
        ("export A=1", "`export` is a builtin of shells, and no shell runs the command → set variables in `env`"),
        ("exec python train.py", "`exec` is a builtin of shells, and no shell runs the command"),
        ("conda activate tf", "`conda activate` changes the shell that runs it, and no shell runs the command"),
        ("sudo -E python train.py", "`sudo` in the command: tasks run as the user tfctl, and cannot get other rights"),
        ("env A=1 sudo x", "`sudo` in the command: tasks run as the user tfctl"),
        ("sh -c 'sudo python train.py'", "`sudo` in the command: tasks run as the user tfctl"),
        ("bash missing.sh", "missing.sh is not in the code that is sent to the hosts: /"),
        ("sh -e sub/missing.sh a", "sub/missing.sh is not in the code"),
        ("env A=1 python missing.py", "missing.py is not in the code"),
        ("nice -n 10 python missing.py", "missing.py is not in the code"),
        ("nohup ./missing", "./missing is not in the code"),
        ("time -p python missing.py", "missing.py is not in the code"),
        ("timeout -k 5 1h python -u missing.py", "missing.py is not in the code"),
        ("numactl --cpunodebind=0 -m 0 python missing.py", "missing.py is not in the code"),
        ("python -u missing.py", "missing.py is not in the code"),
        ("python -m lib.missing", "lib/missing.py is not in the code"),
        ("python -m lib", "lib/__main__.py is not in the code"),
        ("bash -c 'set -e; exec python missing.py'", "missing.py is not in the code"),
        ("bash -c 'cd lib && exec python missing.py'", "lib/missing.py is not in the code"),
        ("env -C lib python train.py", "lib/train.py is not in the code"),
        ("sh -c 'cd lib; exec python b.py'", "lib/b.py is not in the code"),
        ("bash -ceuo pipefail 'exec python missing.py'", "missing.py is not in the code"),
        ("python -Xtracemalloc missing.py", "missing.py is not in the code"),
        ("python -Wonce missing.py", "missing.py is not in the code"),
        ("python -uWignore missing.py", "missing.py is not in the code"),
        ("nice ./plain", "./plain is not executable → run: chmod +x /"),
        ("nohup ~/run", "the `~` in ~/run is not expanded"),
    ],
)
def test_a_command_that_cannot_run_is_refused(command: str, sentence: str, tmp_path: Path) -> None:
    python(tmp_path, "")
    python(tmp_path, "", "plain")
    python(tmp_path, "", "lib/a.py")
    [error] = errors(tmp_path, command)
    assert error.startswith(sentence)


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'source x; cd y; exec python train.py'",
        "sh -c 'sudo true || true; exec python train.py'",
        "sh -c 'which sudo && sudo true; exec python train.py'",
        "sh -c '. ./missing.sh && exec python missing.py'",
        "sh -c 'test -f missing.py && python missing.py; exec python train.py'",
        "sh -c 'curl -O https://host/missing.py; exec python missing.py'",
        "sh -c 'exec python $SCRIPT'",
        "sh -c 'exec ~/bin/run'",
        "python -m tensorflow.missing",
        "python -m tfctl_runtime",
        "env",
        "nice env -i",
        "bash",
        "bash /opt/run.sh",
        "timeout 5 /opt/run",
        "python {role}.py",
        "sudoku",
        "env -C /opt python other.py",
        "bash -ce 'exec python train.py'",
        "bash -ceuo pipefail 'exec python train.py'",
        "bash -s a",
        "sh -c 'if [ -d build ]; then cd build; fi; exec python train.py'",
        "sh -c '(cd lib && true); exec python train.py'",
        "bash -c 'pushd lib >/dev/null; export A=1; popd; exec python train.py'",
    ],
)
def test_a_command_that_may_run_is_not_refused(command: str, tmp_path: Path) -> None:
    python(tmp_path, "")
    assert errors(tmp_path, command) == []


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --epochs 3", "train.py"),
        ("/usr/bin/python3.11 -u -W ignore -X dev sub/train.py", "sub/train.py"),
        ("python -um package.train x.py", ""),
        ("python -c pass x.py", ""),
        ("python - x.py", ""),
        ("python", ""),
    ],
)
def test_the_script_of_a_python_command_is_found(command: str, script: str) -> None:
    assert programs.python_start(command.split()).script == script


@pytest.mark.parametrize("name", ["Slurm", "Kubernetes", "GCE", "TPU"])
def test_a_resolver_that_does_not_read_tf_config_is_named(name: str, tmp_path: Path) -> None:
    python(tmp_path, f"import tensorflow as tf\nr = tf.distribute.cluster_resolver.{name}ClusterResolver()\n")
    for strategy in CLUSTERED:
        assert warnings(tmp_path, "python train.py", strategy) == [
            f"train.py, line 2: {name}ClusterResolver does not read TF_CONFIG: use "
            "tf.distribute.cluster_resolver.TFConfigClusterResolver()"
        ]
    assert warnings(tmp_path, "python train.py", "mirrored") == []
    python(tmp_path, f"from x import {name}ClusterResolver as R, TFConfigClusterResolver as T\nr = R() if 0 else T()\n")
    assert warnings(tmp_path, "python train.py") == []


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    r = TPUClusterResolver()\nexcept ValueError:\n    r = None\n",
        "def get(flags):\n    if flags.tpu:\n        return TPUClusterResolver(flags.tpu)\n",
        "r = TPUClusterResolver() if tpu else None\n",
    ],
)
def test_a_resolver_that_is_one_of_several_ways_is_not_named(text: str, tmp_path: Path) -> None:
    python(tmp_path, text)
    assert warnings(tmp_path, "python train.py") == []
    python(tmp_path, 'if __name__ == "__main__":\n    r = TPUClusterResolver()\n')
    assert len(warnings(tmp_path, "python train.py")) == 1


@pytest.mark.parametrize(
    "text",
    [
        'env = os.environ.copy()\nc = json.loads(env["TF_CONFIG"])\n',
        'env = dict(os.environ)\nc = json.loads(env.get("TF_CONFIG"))\n',
        'c = from_environment("TF_CONFIG")\n',
        "class ClusterSpec:\n    pass\n",
    ],
)
def test_a_cluster_from_tf_config_is_not_named(text: str, tmp_path: Path) -> None:
    python(tmp_path, f"import json, os\n{text}ClusterSpec(c)\n")
    assert warnings(tmp_path, "python train.py") == []


SPEC = "import tensorflow as tf\nc = tf.train.ClusterSpec({'worker': ['localhost:2222']})\n"


def test_a_cluster_of_the_program_is_named_unless_it_comes_from_tfctl(tmp_path: Path) -> None:
    python(tmp_path, SPEC)
    sentence = (
        "train.py, line 2: this cluster is not that of the job: read TF_CONFIG, or let the command pass the addresses "
        "with placeholders such as {worker_hosts}"
    )
    assert warnings(tmp_path, "python train.py") == [sentence]
    assert warnings(tmp_path, "python train.py --index {index}", "custom") == [sentence]
    assert warnings(tmp_path, "python train.py --hosts {worker_hosts}") == []
    assert warnings(tmp_path, "python train.py", lines="env: {HOSTS: '{worker_hosts}'}") == []
    assert (
        warnings(tmp_path, "python train.py", lines="ports: 2222-2223", roles="{worker: {per_host: 2, hosts: node1}}")
        == []
    )
    assert warnings(tmp_path, "python train.py", "mirrored") == []
    python(tmp_path, f"{SPEC}import os\nconfig = os.environ.get('TF_CONFIG')\n")
    assert warnings(tmp_path, "python train.py") == []


def test_horovod_in_a_job_without_ranks_is_named(tmp_path: Path) -> None:
    python(tmp_path, "import os\nimport horovod.tensorflow.keras as hvd\nhvd.init()\n")
    for strategy in set(ROLES) - {"horovod"}:
        [found] = warnings(tmp_path, "python train.py", strategy)
        assert found.startswith(
            f"train.py, line 2 imports horovod, and {strategy} starts no ranks, so that hvd.size() is 1"
        )
    assert warnings(tmp_path, "python train.py", "horovod") == []
    assert warnings(tmp_path, "horovodrun -np 2 python train.py", "custom") == []
    python(tmp_path, "import a\n")
    python(tmp_path, "from horovod import tensorflow\n", "a.py")
    [found] = warnings(tmp_path, "python train.py")
    assert found.startswith("a.py, line 1 imports horovod")


@pytest.mark.parametrize(
    "text",
    ["try:\n  import horovod\nexcept ImportError:\n  pass\n", "if 0:\n  import a\n", "def f():\n  import horovod\n"],
)
def test_horovod_that_is_imported_only_in_some_cases_is_not_named(text: str, tmp_path: Path) -> None:
    python(tmp_path, text)
    python(tmp_path, "import horovod\n", "a.py")
    assert warnings(tmp_path, "python train.py") == []


EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_the_examples_have_no_errors_and_no_warnings(file: Path) -> None:
    layout = lay_out(load(file), INVENTORY, str(file))
    found = check.check(layout, code.of_job(layout))
    assert (found.errors, found.warnings) == ((), ())
    assert check.without_hosts(layout) == []
