"""A cache of Ansible's answers, keyed by the content of the inventory. It may be deleted at any time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import tfctl
from tfctl.model.host import Host, Inventory, Ssh
from tfctl.remote import ansible_cfg
from tfctl.remote.inventory_faults import PLUGIN
from tfctl.remote.inventory_sources import is_host_list

#: Most answers kept. The oldest are dropped first.
KEPT = 200
_VARIABLE = re.compile(rb"\$\{?(\w+)")


def digest(sources: Sequence[str], program: Callable[[], str]) -> str | None:
    """Return a digest of everything that Ansible's answer depends on, or None if the inventory is a program or queries
    a service."""
    total = hashlib.sha256()

    def add(*parts: object) -> None:
        total.update("".join(f"{len(str(part))} {part} " for part in parts).encode("utf-8", "surrogateescape"))

    command = Path(program())
    state = command.stat()
    # Every installed version of Ansible rewrites the command file; asking for its version takes half a second.
    add(tfctl.__version__, *sources, Path.cwd(), Path.home(), command, state.st_mtime_ns, state.st_size)
    add(*sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("ANSIBLE_")))

    def add_variables(content: bytes) -> None:
        """Add the environment variables that a path may contain."""
        names = {name.decode() for name in _VARIABLE.findall(content)}
        add(*(f"{name}={os.environ[name]}" for name in sorted(names & os.environ.keys())))

    config = ansible_cfg.find()
    if config:
        content = config.read_bytes()
        add(config, content)
        add_variables(content)
    try:
        for file in (file for path in sources if not is_host_list(path) for file in _files(Path(path))):
            content, mode = file.read_bytes(), file.stat().st_mode
            if _is_dynamic(file, content, mode):
                return None
            add(file, mode, content)
            add_variables(content)
    except OSError:
        return None
    return total.hexdigest()


def get(name: str | None, source: str) -> Inventory | None:
    """Return the cached answer for this digest, or None. ``source``: that of the inventory."""
    if name is None:
        return None
    try:
        stored = json.loads(_file(name).read_bytes())
        hosts = tuple(_host(**each) for each in stored["hosts"])
        return Inventory(
            source, hosts, _tuples(stored["groups"]), _tuples(stored["unknown"]), tuple(stored["warnings"])
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def put(name: str | None, inventory: Inventory) -> None:
    """Store an answer, readable only by this user. A cache that cannot be written is not an error."""
    if name is None:
        return
    from dataclasses import asdict

    file = _file(name)
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _drop_oldest(file.parent)
        part = file.with_suffix(f".{os.getpid()}")
        part.touch(mode=0o600)
        hosts = [asdict(host) for host in inventory.hosts]
        stored = {"hosts": hosts, "groups": dict(inventory.groups), "unknown": dict(inventory.unknown)}
        part.write_text(json.dumps({**stored, "warnings": inventory.warnings}))
        part.replace(file)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from _below(path)
        return
    yield path
    for name in ("group_vars", "host_vars"):
        yield from _below(path.parent / name)


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (file for file in (Path(root, name) for name in sorted(files)) if file.is_file())


def _is_dynamic(file: Path, content: bytes, mode: int) -> bool:
    if file.suffix in (".yml", ".yaml") and PLUGIN.search(content):
        return True
    return content.startswith(b"#!") or bool(mode & stat.S_IXUSR)


def _tuples(stored: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(values) for key, values in stored.items()}


def _host(
    *,
    ssh: dict[str, object],
    ports: list[int],
    output_roots: list[str],
    stack_dirs: list[str],
    gpus_expected: int,
    **rest: str,
) -> Host:
    """Build a Host from its JSON form."""
    ssh = {**ssh, "args": tuple(ssh["args"])}  # type: ignore[arg-type]
    return Host(
        ssh=Ssh(**ssh),  # type: ignore[arg-type]
        ports=(ports[0], ports[1]),
        output_roots=tuple(output_roots),
        stack_dirs=tuple(stack_dirs),
        gpus_expected=gpus_expected,
        **rest,
    )


def _file(name: str) -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("tfctl")) / "inventory" / f"{name[:40]}.json"


def _drop_oldest(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    for file in files[: max(0, len(files) - KEPT + 1)]:
        file.unlink(missing_ok=True)
