"""Send wheels from the control machine to the store of a host, in pieces, so that a later run can continue.

plugins/modules/send_wheels.py documents the arguments and the result.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

#: The size of a piece, in bytes. What was sent of an interrupted piece is sent again.
PIECE = 64 * 2**20


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("files", "folder", "reason"))

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        files = [{**each, "size": Path(each["path"]).stat().st_size} for each in given["files"]]
        arguments = {"files": files, "folder": given["folder"]}
        prepared = self._store("prepared", arguments, task_vars)
        if prepared.get("failed") or prepared.get("unreachable"):
            return {**result, **prepared}
        sent = 0
        try:
            for each in files:
                if each["sha256"] in prepared["missing"]:
                    sent += self._send(each, prepared["upload"], prepared["pieces"])
        except AnsibleError:
            # The program that sends does not say that a disk is full.
            again = self._store("prepared", arguments, task_vars)
            if again.get("failed"):
                return {**result, **again}
            raise
        result.update(self._store("received", arguments, task_vars))
        if given.get("reason"):
            result["warnings"] = [f"this machine sends the wheels to the host, because {given['reason']}"]
        return {**result, "sent": sent}

    def _store(self, state: str, arguments: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        found = self._execute_module("tfctl.cluster.store", {"state": state, **arguments}, task_vars=task_vars)
        return dict(found)

    def _send(self, file: dict[str, Any], upload: str, there: dict[str, int]) -> int:
        """Send the pieces of a file that the host lacks, and return the number of bytes."""
        sent = 0
        for number, (first, size) in enumerate(pieces(file["size"])):
            name = f"{file['sha256']}.{number}"
            if there.get(name) == size:
                continue
            if size == file["size"]:
                self._connection.put_file(file["path"], f"{upload}/{name}")
            else:
                with Path(file["path"]).open("rb") as source, tempfile.NamedTemporaryFile() as piece:
                    source.seek(first)
                    shutil.copyfileobj(Limited(source, size), piece)
                    piece.flush()
                    self._connection.put_file(piece.name, f"{upload}/{name}")
            sent += size
        return sent


class Limited:
    """A file of which at most ``left`` bytes are read."""

    def __init__(self, file: Any, left: int) -> None:
        self._file, self._left = file, left

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(block)
        return block


def pieces(size: int) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each piece of a file."""
    for first in range(0, max(size, 1), PIECE):
        yield first, min(PIECE, size - first)
