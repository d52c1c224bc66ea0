#!/usr/bin/python
"""Build software from its source with a shell script. A build whose run was killed is not lost.

<directory>             where the script runs; it is deleted at the end
<directory>/../.lock    held while a build runs
<result>                what the script built; the next run takes it
"""

from __future__ import annotations

DOCUMENTATION = """
module: build
short_description: Build software from its source
author: [the tfctl authors (!UNKNOWN)]
description:
  - Runs O(script) as the user nobody in O(directory), which is deleted afterwards. The build runs at low priority and
    continues if the control machine is interrupted. A later run waits for it and takes its result.
  - Reports the compiler's errors if the script fails.
options:
  name: {type: str, required: true, description: 'What is built, for messages.'}
  script:
    description: A shell script. It reads C($ARCHIVE) and leaves the file C($RESULT).
    type: str
    required: true
  directory: {type: path, required: true, description: Where to build. Programs must be allowed to run there.}
  archive: {type: path, required: true, description: The source on this host. It is deleted.}
  result: {type: path, required: true, description: Where to leave what was built.}
"""

EXAMPLES = """
- name: Build libexample
  tfctl.cluster.build:
    name: libexample
    script: cc -shared -fPIC -o "$RESULT" -x c "$ARCHIVE"
    directory: /var/tmp/libexample
    archive: /root/example.c
    result: /usr/local/lib/libexample.so
"""

RETURN = """
faults:
  description:
    - Why it failed. Each has C(message), C(remedy) and C(kind).
    - If one has C(patience_s), another run is at work on the host. Call the module again, for at most so many seconds.
  type: list
  elements: dict
  returned: failure
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils import install

LIMIT_S = 3600
NICENESS = 10
#: The number of lines of a build's output that are reported.
REPORTED = 8
ERROR = re.compile(r"\b(fatal )?error:|CMake Error|No space left|: \*\*\* |: FAILED$", re.IGNORECASE)


def main() -> None:
    text, path = {"type": "str", "required": True}, {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={"name": text, "script": text, "directory": path, "archive": path, "result": path}
    )
    install.finish(module, lambda: build(**module.params), Path(module.params["archive"]))


def build(name: str, script: str, directory: str, archive: str, result: str) -> dict[str, object]:
    """Run the script as nobody in a directory of its own, at low priority. The file that it leaves becomes ``result``.

    The script finds the paths of its input and output in the environment variables ARCHIVE and RESULT. If an earlier
    run has left a result, nothing is built. Raises Locked while another run builds, and ModuleFailed with the errors
    that the compiler printed.
    """
    work = Path(directory)
    with install.scratch(work.with_name(".lock"), f"builds {name}", work):
        if not is_built(Path(result)):
            source = install.directory_for_nobody(work) / Path(archive).name
            shutil.copyfile(archive, source)
            run_script(script, work, {"ARCHIVE": str(source), "RESULT": f"{work}/result"}, f"{name} could not be built")
            keep(work / "result", Path(result))
    return {"changed": True}


def keep(built: Path, result: Path) -> None:
    """Copy what the user nobody built to a file of root's. It must not be a link to a file that nobody cannot read."""
    part = install.temporary_path(result)
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(built, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source, part.open("xb") as target:
        shutil.copyfileobj(source, target)
    part.replace(result)


def is_built(path: Path) -> bool:
    """Return whether this is a regular file of this user."""
    return path.is_file() and not path.is_symlink() and path.stat().st_uid == os.geteuid()


def run_script(script: str, folder: Path, more: dict[str, str], failure: str) -> None:
    """Run a shell script in a folder, with no variables of the caller.

    Raises ModuleFailed, which begins with ``failure``.
    """
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    child = subprocess.Popen(
        ["sh", "-eu", "-c", script],
        cwd=folder, env={**path, "HOME": str(folder), "TMPDIR": str(folder), **more}, preexec_fn=lower_priority,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    try:
        output, _ = child.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise install.ModuleFailed(f"{failure}: it ran longer than {LIMIT_S} s and was killed") from None
    if child.returncode:
        raise install.ModuleFailed("\n".join([failure, *errors_of(output)]))


def lower_priority() -> None:
    """Begin a session whose priority is below that of jobs. With autogroups (sched(7)), nice(2) counts only in one.

    Then become the user nobody, which cannot write to the autogroup.
    """
    os.setsid()
    os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS), encoding="utf-8")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(install.NOBODY)
        os.setuid(install.NOBODY)


def errors_of(output: str) -> list[str]:
    """Return the compilers' errors from a build's output, else its last lines."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    errors: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""]):
        if ERROR.search(line):
            # CMake prints the message below the location.
            errors += [line, after] if line.startswith("CMake Error at ") else [line]
    return (errors or lines)[-REPORTED:]


if __name__ == "__main__":
    main()
